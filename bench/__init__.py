"""Measurements against raw limits and rivals: `python -m bench`.

docs/explanation/benchmarks.md explains them.
"""
