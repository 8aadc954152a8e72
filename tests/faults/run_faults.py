"""`make faults`: run the matrix, or a part of it, and write the table of `docs/faults.md`.

    run_faults.py [--list] [--only TEXT ...] [--without TEXT ...] [--missing] [--ci] [--at-once N] [--data DIR] [--results FILE] [--no-docs]

Prints each result. The exit code is 1 if an invariant was violated or a fault could not be injected, 2 if nothing was run. Results are
kept in a file, so that a part of the matrix can be run again: the table always shows the last result of each fault.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
import tempfile
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from fault_kinds import NotInjectedError
from fault_run import Fault, FaultResult, run_fault_on
from matrix import faults, in_ci
from observed_system import ObservedSystem, missing_equipment

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/faults.md"
_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"
_LONGEST_S = 2400.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args(arguments)
    logging.disable(logging.CRITICAL)
    known = _read(options.results) if options.missing else {}
    wanted = [
        fault
        for fault in (in_ci() if options.ci else faults())
        if _is_wanted(fault.id, options.only, options.without)
    ]
    chosen = [f for f in wanted if (result := known.get(f.id)) is None or result.violations]
    if options.list:
        sys.stdout.write("".join(f"{fault.id}\n" for fault in chosen))
        return 0
    lacking = sorted({lack for fault in chosen if (lack := missing_equipment(fault.kind.equipment))})
    if lacking or not wanted:
        sys.stderr.write("\n".join(lacking or ["no fault has such an id; --list prints all ids"]) + "\n")
        return 2
    options.data.mkdir(parents=True, exist_ok=True)
    new = asyncio.run(_run_all(chosen, options.data, at_once=options.at_once, file=options.results))
    failed = [one for one in new if one.violations]
    if not options.no_docs:
        write_table(_read(options.results))
    sys.stdout.write(f"{len(new)} faults, {len(failed)} with violations\n")
    for result in failed:
        sys.stdout.write(f"{result}\n")
    return 1 if failed else 0


async def _run_all(chosen: Sequence[Fault], data: Path, *, at_once: int, file: Path) -> list[FaultResult]:
    """Run faults that need the same on one system, one after the other, until one of them breaks it."""
    groups: defaultdict[bytes, deque[Fault]] = defaultdict(deque)
    for fault in chosen:
        groups[msgspec.json.encode((fault.kind.equipment, fault.instances))].append(fault)
    new: list[FaultResult] = []

    def note(fault: Fault, result: FaultResult) -> None:
        new.append(result)
        _write(file, {**_read(file), fault.id: result})
        sys.stdout.write(f"{result} [{result.seconds:.0f} s]\n")
        sys.stdout.flush()

    async def work() -> None:
        while waiting := max(groups.values(), key=len, default=None):
            await _run_some(waiting, data, note)

    await asyncio.gather(*(work() for _ in range(at_once)))
    return new


async def _run_some(waiting: deque[Fault], data: Path, note: Callable[[Fault, FaultResult], None]) -> None:
    """Take faults from the queue for one system until one is violated or cannot be run."""
    folder = Path(tempfile.mkdtemp(prefix="muster-fault-", dir=data))
    fault = waiting.popleft()
    began = time.monotonic()
    try:
        async with ObservedSystem.running(folder, fault.kind.equipment, instances=fault.instances) as system:
            while True:
                began = time.monotonic()
                async with asyncio.timeout(_LONGEST_S):
                    result = await run_fault_on(system, fault)
                note(fault, result)
                if result.violations:
                    _keep_log(folder, data / f"{fault.id}.log")
                if result.violations or not fault.kind.reusable or not waiting:
                    return
                fault = waiting.popleft()
                system.start_anew()
    except Exception as error:
        if not isinstance(error, NotInjectedError):
            traceback.print_exc()
        problem = f"it could not be injected: {type(error).__name__} {error}"
        note(fault, FaultResult.of(fault, violations=(problem,), seconds=time.monotonic() - began))
        _keep_log(folder, data / f"{fault.id}.log")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep_log(folder: Path, kept: Path) -> None:
    log = folder / "data/muster.log"
    if log.exists():
        shutil.copy(log, kept)


def write_table(results: dict[str, FaultResult]) -> None:
    """Replace the table of the page with these results, in the order of the matrix."""
    rows = ["| fault | moment | instances | jobs | recovery | result |", "|---|---|---|---|---|---|"]
    every = faults()
    shown = [results[fault.id] for fault in every if fault.id in results]
    for one in shown:
        recovery = "none" if one.recovery_s is None else f"{one.recovery_s:.1f} s"
        moment = f"`{one.moment}`" if one.moment else "under load"
        rows.append(
            f"| {one.fault} | {moment} | {one.instances} | {one.jobs} | {recovery} | {_result(one)} |"
        )
    violated = sum(bool(one.violations) for one in shown)
    dates = sorted({one.date for one in shown})
    summary = (
        f"{len(shown)} of {len(every)} faults, {violated} violated; {sum(one.jobs for one in shown):,} jobs. "
        f"Run {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {min(one.cores for one in shown)} cores."
        if shown
        else f"0 of {len(every)} faults."
    )
    page = PAGE.read_text()
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    table = "\n".join([summary, "", *rows])
    PAGE.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{after}")


def _result(result: FaultResult) -> str:
    broken = sorted({one.partition(":")[0] for one in result.violations})
    outcome = f"violated: {'; '.join(broken)}" if broken else "held"
    return f"{outcome} ({', '.join(result.figures)})" if result.figures else outcome


def _is_wanted(name: str, only: Sequence[str], without: Sequence[str]) -> bool:
    chosen = not only or any(part in name for part in only)
    return chosen and not any(part in name for part in without)


def _read(file: Path) -> dict[str, FaultResult]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, FaultResult])
    except FileNotFoundError:
        return {}


def _write(file: Path, results: dict[str, FaultResult]) -> None:
    file.write_bytes(msgspec.json.encode(results))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="faults", description="Run the matrix of faults.")
    parser.add_argument(
        "--list", action="store_true", help="print the ids of the chosen faults, and run none"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="run only faults whose id contains TEXT"
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="TEXT", help="skip faults whose id contains TEXT"
    )
    parser.add_argument(
        "--missing",
        action="store_true",
        help="run only faults without a result, or whose last result is a violation",
    )
    parser.add_argument(
        "--ci", action="store_true", help="run only the part that every change is tested with"
    )
    parser.add_argument(
        "--at-once", type=int, default=1, metavar="N", help="number of systems that run in parallel"
    )
    parser.add_argument(
        "--data", type=Path, default=Path("/var/tmp"), metavar="DIR", help="working directory, not on a tmpfs"
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("/var/tmp/muster-faults.json"),
        metavar="FILE",
        help="file that keeps the last result of each fault",
    )
    parser.add_argument("--no-docs", action="store_true", help="do not write the table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
