"""Heliograph beside what others use for the same job, and beside the same job written by hand."""
