"""Measurements against raw limits and rivals: `python -m bench`; docs/benchmarks.md explains them."""
