"""Policies of channels and receivers, dispatch orders and thread arrangements."""
