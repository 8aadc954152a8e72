"""When what runs is expected to end: by its deadline, and by how long jobs of the same name took before.

A memory of the facts that were read, no more: who has read fewer of them knows fewer durations, and waits where another would plan.
"""

from __future__ import annotations

from muster_core.models import JobRecord, Phase

_US = 1_000_000
_NAMES_KEPT = 10_000
_RUNS_KEPT = 5


class Durations:
    """The last run times (µs) of jobs that succeeded, by namespace and name."""

    def __init__(self) -> None:
        self._taken: dict[tuple[str, str], tuple[int, ...]] = {}

    def note(self, record: JobRecord) -> None:
        """Learn from a job that has succeeded; others teach nothing, and the same one teaches once as long as it is told once."""
        if record.phase is not Phase.SUCCEEDED or record.job is None or not record.running_at:
            return
        key = (record.job.namespace, record.job.name)
        taken = self._taken.pop(key, ())
        self._taken[key] = (*taken, max(record.finished_at - record.running_at, 0))[-_RUNS_KEPT:]
        if len(self._taken) > _NAMES_KEPT:
            del self._taken[next(iter(self._taken))]

    def expected_end(self, record: JobRecord, now: int) -> int | None:
        """The instant (µs, not before ``now``) at which a running job is expected to have ended, or None where nothing tells."""
        if record.job is None:
            return None
        ends: list[int] = []
        deadline = record.job.run.active_deadline_s
        if deadline is not None:
            ends.append((record.started_at or now) + deadline * _US)
        taken = self._taken.get((record.job.namespace, record.job.name))
        if taken:
            ends.append((record.running_at if record.phase is Phase.RUNNING else now) + max(taken))
        return max(min(ends), now) if ends else None
