"""How long news of replicas that come up is held back, so that those of one gang are told together.

Pods come up one by one, within moments of each other. Told one by one they would cost everybody who listens as much as so many gangs,
just when many gangs start at once and everybody is busy. That a pod is there says little once it runs, so it waits for that a while.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.events import ReplicaChange
from muster_core.models import ReplicaState

COMING = frozenset({ReplicaState.LAUNCHED, ReplicaState.RUNNING})
"""The states of a replica that comes up."""

_PATIENCE = 20
"""So many times as long as that they run, it waits to be told that pods are there of which nothing is wrong. A kubelet takes seconds to
start a pod, and its running says the same and more; until then being placed says nearly as much."""


class Holding:
    """Holds news for ``hold_us`` at most (µs; 0: never), and 20 times as long where it is only that pods are there.

    A replica's end is told at once, and so is the last of a gang to run.
    """

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
        is_plain = all(change.state is ReplicaState.LAUNCHED and not change.reason for change in news)
        latest = now + self._hold_us * (_PATIENCE if is_plain else 1)
        until = self._until[job_id] = min(self._until.get(job_id, latest), latest)
        return until if until > now else None

    def drop(self, job_id: str) -> None:
        """Nothing of this job is held back any more."""
        self._until.pop(job_id, None)
