"""Consumers of one priority band in a process of their own, which is watched and started again."""
