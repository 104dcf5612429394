"""The threads that call queued callbacks."""
