"""When what runs is expected to end: by its deadline, and by how long jobs of the same name took before.

A memory of the events that were read, no more: who has read fewer of them knows fewer durations, and waits where another would plan.
"""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from muster_core.models import JobRecord, Phase

_US = 1_000_000
_NAMES_KEPT = 10_000
_RUNS_KEPT = 5


class _Run(NamedTuple):
    """A run that ended well at ``finished_at`` after ``taken`` (both µs)."""

    finished_at: int
    job_id: str
    taken: int


class Durations:
    """The last run times of jobs that succeeded, by namespace and name. ``version`` changes whenever something is learned.

    The last are those that finished last, in whatever order they are told, and however often.
    """

    def __init__(self) -> None:
        self.version = 0
        self._taken: dict[tuple[str, str], tuple[_Run, ...]] = {}

    @property
    def names(self) -> Set[tuple[str, str]]:
        """The namespaces and names of which something is known."""
        return self._taken.keys()

    def note(self, record: JobRecord) -> None:
        """Learn from a job that has succeeded; others teach nothing."""
        if record.phase is not Phase.SUCCEEDED or record.job is None or not record.running_at:
            return
        key = (record.job.namespace, record.job.name)
        known = self._taken.pop(key, ())
        run = _Run(record.finished_at, record.job_id, max(record.finished_at - record.running_at, 0))
        self._taken[key] = tuple(sorted({*known, run}))[-_RUNS_KEPT:]
        self.version += self._taken[key] != known
        if len(self._taken) > _NAMES_KEPT:
            del self._taken[next(iter(self._taken))]

    def expected_end(self, record: JobRecord, now: int) -> int | None:
        """The instant (µs, not before ``now``) at which a running job is expected to have ended, or None where nothing tells."""
        if record.job is None:
            return None
        ends: list[int] = []
        deadline = record.job.run.active_deadline_s
        if deadline is not None:
            ends.append((record.active_from or now) + deadline * _US)
        taken = self._taken.get((record.job.namespace, record.job.name))
        if taken:
            longest = max(run.taken for run in taken)
            ends.append((record.running_at if record.phase is Phase.RUNNING else now) + longest)
        return max(min(ends), now) if ends else None

    def is_fixed(self, record: JobRecord) -> bool:
        """Whether the expected end of a running job is an instant that only events can move, until it is past."""
        return bool(record.active_from) and record.phase is Phase.RUNNING
