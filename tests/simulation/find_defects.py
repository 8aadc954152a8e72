"""Search for the first seed that finds each defect: ``python tests/simulation/find_defects.py [--count 1000] [--jobs 2]``.

Prints each with the kind of violation that shows it; the exit code is 1 if a defect was not found.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from defects import DEFECTS, DETECTED_AS
from simulated_run import Outcome, run_seeds
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
        found: list[int] = []
        kind = DETECTED_AS[name]
        seeds = range(chosen.first, chosen.first + chosen.count)
        for outcome in run_seeds(
            seeds,
            tuple(Fault),
            defect=DEFECTS[name],
            at_once=chosen.jobs,
            until=lambda one, kind=kind: _has(one, kind),
        ):
            if _has(outcome, kind):
                found.append(outcome.seed)
        missed += not found
        print(f"| {name} | {min(found, default=f'none of {chosen.count}')} | {kind} |", flush=True)
    return 1 if missed else 0


def _has(outcome: Outcome, kind: str) -> bool:
    return any(violation.kind == kind for violation in outcome.violations)


if __name__ == "__main__":
    sys.exit(main())
