"""Matches of recorded patterns, found again in Spark."""
