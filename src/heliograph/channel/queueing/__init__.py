"""What waits for one receiver: a bounded queue in an order, with a named overflow policy."""
