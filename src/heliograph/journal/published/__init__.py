"""Sealed segments in an object store, published by the station that keeps them and read from anywhere."""
