"""Those who wait, in lines of equal gangs, so that a gang that does not fit is tried once and not once a job.

With ten thousand jobs in the queue there are few different gangs: a decision costs what the gangs cost, not what the jobs do.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator

from muster_core.models import Reason
from muster_core.placement import Gang
from muster_core.queues.order import QueueKey


class Line:
    """Jobs whose gangs are equal, in order. ``told`` is the reason that all of them are known to have been told."""

    __slots__ = ("gang", "keys", "told")

    def __init__(self, gang: Gang) -> None:
        self.gang = gang
        self.keys: list[QueueKey] = []
        self.told: Reason | None = None


class WaitingLines:
    """Every job that may start as soon as it fits, by gang."""

    def __init__(self) -> None:
        self._lines: dict[Gang, Line] = {}
        self._places: dict[str, tuple[Line, QueueKey]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._places

    def __iter__(self) -> Iterator[Line]:
        """The lines by their first job."""
        return iter(sorted(self._lines.values(), key=lambda line: line.keys[0]))

    def put(self, job_id: str, key: QueueKey, gang: Gang) -> None:
        """Let a job wait, or renew what it asks for."""
        self.drop(job_id)
        line = self._lines.get(gang)
        if line is None:
            line = self._lines[gang] = Line(gang)
        insort(line.keys, key)
        line.told = None
        self._places[job_id] = (line, key)

    def drop(self, job_id: str) -> None:
        """Let a job wait no more; nothing happens where it does not."""
        place = self._places.pop(job_id, None)
        if place is None:
            return
        line, key = place
        del line.keys[bisect_left(line.keys, key)]
        if not line.keys:
            del self._lines[line.gang]

    def retell(self, job_id: str) -> None:
        """Forget that the job's line has been told its reason."""
        place = self._places.get(job_id)
        if place is not None:
            place[0].told = None

    def walk(self, blocked: dict[Gang, Reason]) -> Iterator[tuple[QueueKey, Gang]]:
        """Every job in order, except those behind one whose gang has been put into ``blocked`` meanwhile."""
        lines = list(self)
        heap = [(line.keys[0], position) for position, line in enumerate(lines)]
        at = [0] * len(lines)
        while heap:
            key, position = heapq.heappop(heap)
            line = lines[position]
            yield key, line.gang
            at[position] += 1
            if line.gang not in blocked and at[position] < len(line.keys):
                heapq.heappush(heap, (line.keys[at[position]], position))
