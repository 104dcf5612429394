"""Looking at a folder, and repairing it."""
