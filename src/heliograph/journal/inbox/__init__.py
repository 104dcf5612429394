"""Batches that other processes stage and the station takes in."""
