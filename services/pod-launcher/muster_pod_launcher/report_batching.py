"""Batching of reports of starting replicas, so that those of one gang are one event.

Pods start one by one. Reported one by one they would cost every reader as much as that many gangs, just when many gangs
start at once. That a pod exists matters little once it runs, so this waits longer.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.events import ReplicaChange
from muster_core.models import ReplicaState

STARTING_STATES = frozenset({ReplicaState.LAUNCHED, ReplicaState.RUNNING})
"""The states of a starting replica."""

_LAUNCHED_FACTOR = 20
"""Reports of launched pods without a problem wait this many times longer than reports of running ones. A kubelet takes
seconds to start a pod, and its running state says more.
"""


class ReportBatching:
    """Delays reports for at most ``batch_us`` (µs; 0: never), and 20 times as long if replicas are launched only.

    The end of a replica is reported at once, and so is the last replica of a gang to run.
    """

    def __init__(self, *, batch_us: int) -> None:
        self._batch_us = batch_us
        self._until: dict[str, int] = {}

    def until(
        self, job_id: str, changes: Sequence[ReplicaChange], *, all_running: bool, now: int
    ) -> int | None:
        """Return until when (µs) to delay the report, or None to report now."""
        is_urgent = all_running or any(change.state not in STARTING_STATES for change in changes)
        if not self._batch_us or is_urgent:
            return None
        is_plain = all(change.state is ReplicaState.LAUNCHED and not change.reason for change in changes)
        latest = now + self._batch_us * (_LAUNCHED_FACTOR if is_plain else 1)
        until = self._until[job_id] = min(self._until.get(job_id, latest), latest)
        return until if until > now else None

    def clear(self, job_id: str) -> None:
        """Clear the delay of a job."""
        self._until.pop(job_id, None)
