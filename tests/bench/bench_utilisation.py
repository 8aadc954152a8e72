"""The cost of reservations for a gang of the whole pool among an endless stream of small jobs, and whether the gang
starts in time.

Pure: the scheduler on a virtual clock. 8 nodes with 4 GPUs each; small jobs of 1 or 2 GPUs and 30 to 120 s, some of which
always wait; every 15 minutes a gang of all 32 GPUs for 5 minutes. With known ends, each small job has a deadline a
quarter after its end; with unknown ends it has none.
"""

import random
from pathlib import Path

import msgspec
from measuring import Measurement

from muster_core.models import Job, Node, Resources, Role, RunPolicy, Template
from muster_core.scheduling import Place, PoolState, Wait
from muster_testing.pool import SECOND, VirtualPool

NAMES = (
    "reservation_utilisation_percent.known_ends",
    "reservation_utilisation_percent.unknown_ends",
    "reservation_wait_over_bound.known_ends",
    "reservation_wait_over_bound.unknown_ends",
)

_NODES = 8
_GPUS = 4
_POOL = _NODES * _GPUS
_SMALL_S = (30, 120)
_WAITING = 12
_EVERY_S = 900
_LARGE_S = 300
_TIMEOUT_S = 30
_HOURS = 3


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run: ``utilisation`` in percent of all GPU-seconds, ``gangs`` of the whole pool that had a
    reservation, and the ``worst`` wait of one from its reservation, relative to the longest allowed.
    """

    utilisation: float
    gangs: int
    worst: float


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Run three hours with known ends and three with unknown ones, or one with ``quick``; ``root`` is unused."""
    del root
    seconds = 3600 * (1 if quick else _HOURS)
    measurements: list[Measurement] = []
    for known, name in ((True, "known_ends"), (False, "unknown_ends")):
        run = _Crowd(known=known).run(seconds)
        note = f"{run.gangs} gangs of all {_POOL} GPUs in {seconds // 3600} h, small jobs of {_SMALL_S[0]} to {_SMALL_S[1]} s in between"
        measurements += [
            Measurement(
                name=f"reservation_utilisation_percent.{name}",
                value=run.utilisation,
                unit="%",
                budget=85,
                better="more",
                note=note,
            ),
            Measurement(
                name=f"reservation_wait_over_bound.{name}",
                value=run.worst,
                unit="ratio",
                budget=1,
                note="the longest wait from the reservation to the start, relative to its bound",
            ),
        ]
    return measurements


class _Crowd:
    """An endless stream of small jobs, and a large one now and then."""

    def __init__(self, *, known: bool) -> None:
        self._known = known
        self._random = random.Random(25)
        self._pool = VirtualPool(check=_nothing)
        self._lasts: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._bounds: dict[str, tuple[int, int]] = {}
        self._ratios: list[float] = []
        self._number = 0
        for number in range(_NODES):
            self._pool.node(Node(name=f"n{number}", allocatable=Resources(cpu=16_000, gpu=_GPUS * 1000)))

    def run(self, seconds: int) -> Run:
        """Advance the clock by this time."""
        pool = self._pool
        began = pool.now
        due = began + _EVERY_S * SECOND
        used = 0
        while pool.now < began + seconds * SECOND:
            if pool.now >= due:
                due += _EVERY_S * SECOND
                self._submit("large", _POOL, _LARGE_S)
            self._keep_waiting()
            self._decide()
            until = min([due, *self._ends.values(), self._wake()])
            used += (until - pool.now) * self._held()
            pool.now = until
            self._end()
        for job_id in list(self._bounds):
            # A gang that has not started has waited at least this long.
            self._note_start(job_id)
        return Run(
            utilisation=100 * used / ((pool.now - began) * _POOL),
            gangs=len(self._ratios),
            worst=max(self._ratios, default=0.0),
        )

    def _keep_waiting(self) -> None:
        waiting = len(self._lasts) - len(self._ends)
        for _ in range(_WAITING - waiting):
            self._submit("small", self._random.choice((1, 1, 2)), self._random.randint(*_SMALL_S))

    def _submit(self, name: str, gpus: int, seconds: int) -> None:
        self._number += 1
        worker = Role(
            name="worker",
            replicas=gpus,
            min=gpus,
            max=gpus,
            template=Template(requests=Resources(cpu=1000, gpu=1000)),
        )
        run = RunPolicy(active_deadline_s=seconds * 5 // 4) if self._known else RunPolicy()
        job_id = f"{name}-{self._number}"
        self._lasts[job_id] = seconds
        self._pool.submit(Job(name=job_id, roles=(worker,), run=run))

    def _decide(self) -> None:
        pool = self._pool
        while decided := pool.state.decide(pool.now):
            self._note_reservations()
            pool.commit(decided)
            for one in decided:
                if isinstance(one, Place):
                    self._ends[one.job_id] = pool.now + self._lasts[one.job_id] * SECOND
                    self._note_start(one.job_id)
            pool.launch()
            if all(isinstance(one, Wait) for one in decided):
                return

    def _note_reservations(self) -> None:
        """Return the bound of a new reservation: when all running jobs have ended."""
        for kept in self._pool.state.reservations:
            if kept.job_id.startswith("large") and kept.job_id not in self._bounds:
                last = max(self._ends.values(), default=self._pool.now)
                self._bounds[kept.job_id] = (self._pool.now, kept.expected_at or last)

    def _note_start(self, job_id: str) -> None:
        if job_id in self._bounds:
            reserved_at, bound = self._bounds.pop(job_id)
            self._ratios.append((self._pool.now - reserved_at) / max(bound - reserved_at, SECOND))

    def _wake(self) -> int:
        wake = self._pool.state.next_wake(self._pool.now)
        later = self._pool.now + _TIMEOUT_S * SECOND
        return later if wake is None or wake <= self._pool.now else min(wake, later)

    def _held(self) -> int:
        return sum(len(self._pool.record(job_id).gang()) for job_id in self._ends)

    def _end(self) -> None:
        for job_id in [job_id for job_id, end in self._ends.items() if end <= self._pool.now]:
            self._pool.finish(job_id)
            del self._ends[job_id], self._lasts[job_id]


def _nothing(_: PoolState) -> None:
    return
