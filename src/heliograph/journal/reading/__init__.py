"""Readers of heads and of sealed segments."""
