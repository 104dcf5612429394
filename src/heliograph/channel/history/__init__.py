"""What a channel asks of whatever keeps its history, and how receivers read it up to the live events."""
