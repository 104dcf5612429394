"""What a station tells of itself: snapshots, rates, Prometheus text, verdicts on single events.

Every face shows the same numbers: `station.snapshot()`, the page, `helio top`, `helio doctor`, `/metrics`.
They are taken from the ledger's counters when somebody asks; a station that nobody looks at pays nothing.
"""
