"""Those who wait, in lines of equal gangs of one account, so that a gang that does not fit is tried once and not once a job.

With ten thousand jobs in the queue there are few different gangs: a decision costs what the gangs cost, not what the jobs do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterator, Sized
from typing import NamedTuple

from muster_core.models import Reason
from muster_core.scheduling.placement import Gang
from muster_core.scheduling.queues.order import QueueKey
from muster_core.scheduling.queues.tree import Account


class Shape(NamedTuple):
    """What jobs of one line have in common. ``bound_s`` is how long each may run at most, None where nothing says so."""

    account: Account
    gang: Gang
    bound_s: int | None = None

    @property
    def queue(self) -> str:
        """The queue."""
        return self.account[0]


class Look(NamedTuple):
    """The ``reason`` for which a line found no room at ``at`` (µs), None where it found some after all; it holds as long as ``basis`` is
    the same, None: for this once."""

    at: int
    basis: Hashable
    reason: Reason | None


class Line:
    """Jobs of one shape, in order. ``told`` is the reason that all of them are known to have been told, ``oldest`` the start (µs) of the
    longest wait among them where nothing but room keeps any of them, ``look`` why there was no room when that was looked at last; each
    None where that is not known. ``unheard``: since the line was last considered, somebody has come who was not told anything yet."""

    __slots__ = ("keys", "look", "oldest", "shape", "told", "unheard")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.keys: list[QueueKey] = []
        self.told: Reason | None = None
        self.oldest: int | None = None
        self.look: Look | None = None
        self.unheard = False


class WaitingLines:
    """Every job that may start as soon as it fits, by shape."""

    def __init__(self) -> None:
        self._lines: dict[Shape, Line] = {}
        self._places: dict[str, tuple[Line, QueueKey]] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def shapes(self) -> Sized:
        """The different shapes."""
        return self._lines.keys()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._places

    def __iter__(self) -> Iterator[Line]:
        """The lines by their first job."""
        return iter(sorted(self._lines.values(), key=lambda line: line.keys[0]))

    def line_of(self, job_id: str) -> Line:
        """The line that a job waits in; raises KeyError where it waits in none."""
        return self._places[job_id][0]

    def put(self, job_id: str, key: QueueKey, shape: Shape, *, heard: bool) -> None:
        """Let a job wait, or renew what it asks for; ``heard`` says whether it was ever told a reason."""
        self.drop(job_id)
        line = self._lines.get(shape)
        if line is None:
            line = self._lines[shape] = Line(shape)
        insort(line.keys, key)
        line.told = line.oldest = None
        line.unheard = line.unheard or not heard
        self._places[job_id] = (line, key)

    def drop(self, job_id: str) -> None:
        """Let a job wait no more; nothing happens where it does not."""
        place = self._places.pop(job_id, None)
        if place is None:
            return
        line, key = place
        line.oldest = None
        del line.keys[bisect_left(line.keys, key)]
        if not line.keys:
            del self._lines[line.shape]

    def retell(self, job_id: str) -> None:
        """Forget that the job's line has been told its reason, and how long it waits."""
        place = self._places.get(job_id)
        if place is not None:
            place[0].told = place[0].oldest = None
