"""`python -m heliograph.sim SEED...`: plays federations by their seeds and prints what happens in them.

The exit code is 1 when a promise did not hold. `--quiet` prints only the seeds for which that is so.
"""

from __future__ import annotations

import sys

from heliograph.errors import HeliographError
from heliograph.sim.federation import play


def main(arguments: list[str]) -> int:
    """Play the seeds, numbers or ranges such as 1-300."""
    is_quiet = "--quiet" in arguments
    seeds: list[int] = []
    for text in [one for one in arguments if not one.startswith("-")]:
        first, _, last = text.partition("-")
        if not first.isdigit() or not (last or "0").isdigit():
            print(f"{text!r} is no seed; give a number, or a range such as 1-300", file=sys.stderr)
            return 2
        seeds += range(int(first), int(last or first) + 1)
    if not seeds:
        print(__doc__, file=sys.stderr)
        return 2
    broken = 0
    for seed in seeds:
        try:
            play(seed, (lambda _: None) if is_quiet else print)
        except HeliographError as error:
            broken += 1
            print(f"seed {seed}: {error}")
        else:
            if not is_quiet:
                print(f"seed {seed}: all promises held")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
