"""Search for the first seed that finds each defect: ``python tests/simulation/find_defects.py [--count 1000] [--jobs 2]``.

Prints a table for docs/faults.md; the exit code is 1 if a defect was not found.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from defects import DEFECTS
from simulated_run import run_seeds
from workload import Fault


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--count", type=int, default=1000, help="how many seeds for each defect")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at the same time")
    parser.add_argument("defects", nargs="*", default=list(DEFECTS), help="the defects, by default all")
    chosen = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    missed = 0
    print("| defect | first seed | violation |\n|---|---|---|")
    for name in chosen.defects:
        found: dict[int, str] = {}
        seeds = range(chosen.first, chosen.first + chosen.count)
        for outcome in run_seeds(
            seeds,
            tuple(Fault),
            defect=DEFECTS[name],
            at_once=chosen.jobs,
            until=lambda one: bool(one.violations),
        ):
            if outcome.violations:
                found[outcome.seed] = outcome.violations[0].kind
        if found:
            first = min(found)
            print(f"| {name} | {first} | {found[first]} |", flush=True)
        else:
            missed += 1
            print(f"| {name} | none of {chosen.count} | |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
