"""How long news of replicas that come up is held back, so that those of one gang are told together.

Pods come up one by one, within moments of each other. Told one by one they would cost everybody who listens as much as so many gangs,
just when many gangs start at once and everybody is busy.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.facts import ReplicaChange
from muster_core.models import ReplicaState

COMING = frozenset({ReplicaState.LAUNCHED, ReplicaState.RUNNING})
"""The states of a replica that comes up."""


class Holding:
    """Holds news for ``hold_us`` at most (µs; 0: never). A replica's end is told at once, and so is the last of a gang to run."""

    def __init__(self, *, hold_us: int) -> None:
        self._hold_us = hold_us
        self._until: dict[str, int] = {}

    def until(
        self, job_id: str, news: Sequence[ReplicaChange], *, everyone_runs: bool, now: int
    ) -> int | None:
        """The instant (µs) until which this is held back; None where it is to be told now."""
        is_urgent = everyone_runs or any(change.state not in COMING for change in news)
        if not self._hold_us or is_urgent:
            return None
        until = self._until.setdefault(job_id, now + self._hold_us)
        return until if until > now else None

    def drop(self, job_id: str) -> None:
        """Nothing of this job is held back any more."""
        self._until.pop(job_id, None)
