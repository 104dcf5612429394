"""Durable positions of named consumers, their repair and their lag."""
