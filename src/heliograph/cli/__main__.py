"""`python -m heliograph.cli` is `helio`."""

from __future__ import annotations

from heliograph.cli import main

main()
