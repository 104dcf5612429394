"""Which of many subscriptions does an event match? See `heliograph.filters.index.matcher`.

matcher     the index: add, remove, match
plan        a condition as alternatives of regions and leftovers
access      which columns lead to an alternative
regions     what a predicate accepts, as intervals of an ordered domain
ranges      which of many intervals hold a point
"""

from __future__ import annotations

from heliograph.filters.index.matcher import Handle, Matcher, MatcherStats

__all__ = ["Handle", "Matcher", "MatcherStats"]
