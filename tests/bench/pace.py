"""The speed of the machine itself, so that figures of two days or machines can be compared.

The same commit is half as fast in an hour in which others use the same hardware. These figures do not involve Muster:
whatever doubles with them is the machine's.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
from measuring import Measurement

NAMES = ("machine_step_ns", "machine_sync_ms")

_STEPS = 2_000_000
_TRIES = 3
_SYNCS = 100
_BYTES = 1024


class PullPacer(msgspec.Struct, frozen=True):
    """`step_ns`: CPU time of one step of a Python loop; `sync_ms`: making an append of 1 KiB durable."""

    step_ns: float
    sync_ms: float

    def measurements(self) -> list[Measurement]:
        """Return both as measurements without budgets."""
        return [
            Measurement(
                name="machine_step_ns", value=self.step_ns, unit="ns", note="one step of a loop in Python"
            ),
            Measurement(
                name="machine_sync_ms", value=self.sync_ms, unit="ms", note="1 KiB appended and synced"
            ),
        ]


def take_pace(root: Path) -> PullPacer:
    """Measure for a second; `root` is on the disk of the measured systems."""
    return PullPacer(step_ns=min(_step_ns() for _ in range(_TRIES)), sync_ms=_sync_ms(root))


def _step_ns() -> float:
    began = time.process_time_ns()
    total = 0
    for step in range(_STEPS):
        total += step
    return (time.process_time_ns() - began) / _STEPS


def _sync_ms(root: Path) -> float:
    took: list[float] = []
    # With a name: a nameless file has no metadata to sync.
    with tempfile.NamedTemporaryFile(dir=root) as file:
        for _ in range(_SYNCS):
            file.write(bytes(_BYTES))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(1000 * (time.perf_counter() - began))
    return statistics.fmean(took)
