"""Group commit, recovery, producers and their deduplication."""
