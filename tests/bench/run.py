"""`make bench`: measure the budgets on this machine.

    run.py [--quick] [--only NAME ...] [--data DIR]

Prints a table, then one JSON object a line. The exit code is 1 if something could not be measured, and 0 otherwise,
whether or not budgets are met.
"""

import argparse
import asyncio
import logging
import os
import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import bench_fragments
import bench_history
import bench_place
import bench_placement
import bench_recovery
import bench_scale_out
import bench_scheduler
import bench_simulate
import bench_status
import bench_submit
import bench_up
import bench_utilisation
import bench_validate
import msgspec
from measuring import Measurement, table
from pace import take_pace


class Measure(Protocol):
    """Takes measurements on systems with data under `root`; `quick` runs are shorter."""

    def __call__(self, root: Path, *, quick: bool) -> Awaitable[list[Measurement]]:
        """Measure."""
        ...


class Group(msgspec.Struct, frozen=True):
    """Measurements that are taken together: their names, and the function."""

    names: tuple[str, ...]
    measure: Callable[..., Awaitable[list[Measurement]]]


GROUPS = (
    Group(bench_placement.NAMES, bench_placement.measure),
    Group(bench_fragments.NAMES, bench_fragments.measure),
    Group(bench_simulate.NAMES, bench_simulate.measure),
    Group(bench_utilisation.NAMES, bench_utilisation.measure),
    Group(bench_scheduler.NAMES, bench_scheduler.measure),
    Group(bench_up.NAMES, bench_up.measure),
    Group(bench_validate.NAMES, bench_validate.measure),
    Group(bench_place.NAMES, bench_place.measure),
    Group(bench_status.NAMES, bench_status.measure),
    Group(bench_submit.NAMES, bench_submit.measure),
    Group(bench_recovery.NAMES, bench_recovery.measure),
    Group(bench_history.NAMES, bench_history.measure),
    *(
        Group(bench_scale_out.names(service), partial(bench_scale_out.measure, service))
        for service in bench_scale_out.SERVICES
    ),
)

log = logging.getLogger("bench")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; returns the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    chosen = [group for group in GROUPS if _is_wanted(group, options.only)]
    if not chosen:
        sys.stderr.write(f"no measurement is named {', '.join(options.only)}\n")
        return 1
    pace = take_pace(options.data)
    measurements, failed = asyncio.run(_run(chosen, options.data, quick=options.quick))
    wanted = [m for m in measurements if _matches(m.name, options.only)] + pace.measurements()
    sys.stdout.write(f"{_machine()}\n\n{table(wanted)}\n\n")
    for measurement in wanted:
        sys.stdout.write(measurement.as_json() + "\n")
    return 1 if failed else 0


async def _run(groups: Sequence[Group], root: Path, *, quick: bool) -> tuple[list[Measurement], bool]:
    measurements: list[Measurement] = []
    failed = False
    for group in groups:
        sys.stderr.write(f"measuring {', '.join(group.names)} ...\n")
        try:
            measurements += await group.measure(root, quick=quick)
        except Exception:
            log.exception("%s could not be measured", ", ".join(group.names))
            failed = True
    return measurements, failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the budgets.")
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a first look")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only names with this prefix; may be repeated",
    )
    parser.add_argument(
        "--data", type=Path, default=Path("/var/tmp"), metavar="DIR", help="a folder on a disk, not in memory"
    )
    return parser


def _is_wanted(group: Group, only: Sequence[str]) -> bool:
    return any(_matches(name, only) for name in group.names)


def _matches(name: str, only: Sequence[str]) -> bool:
    return not only or any(name.startswith(prefix) for prefix in only)


def _machine() -> str:
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, load {load:.1f}"


if __name__ == "__main__":
    sys.exit(main())
