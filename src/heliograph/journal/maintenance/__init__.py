"""What happens to written history: sealing, merging, compaction, retention."""
