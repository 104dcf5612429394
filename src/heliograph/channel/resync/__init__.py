"""State resynchronisation: a receiver that has missed events asks suppliers for their state."""
