"""Many events as Arrow columns."""
