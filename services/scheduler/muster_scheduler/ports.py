"""Interfaces of a term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from muster_core.events import CapacityChanged
from muster_core.models import JobRecord
from muster_core.scheduling import Instruction


class DecisionLog(Protocol):
    """Commits decisions: all of them, or none after the election of another leader. Only ``JobWaiting`` events, which allocate
    nothing, may be stored in part if a commit fails."""

    async def commit(self, decisions: Sequence[tuple[JobRecord, Instruction]]) -> int:
        """Commit decisions; returns the last sequence. Raises ``Fenced``, or ``BusUnavailable`` if the outcome is unknown."""
        ...


class TotalsPublisher(Protocol):
    """Publishes the totals of the pool."""

    async def publish(self, capacity: CapacityChanged) -> None:
        """Publish the totals; returns when they are durable."""
        ...


class CycleObserver(Protocol):
    """Observes scheduling cycles; durations are in seconds."""

    def observe_cycle(self, duration_s: float) -> None:
        """Handle the end of a cycle, which took this long to decide."""
        ...

    def observe_commit(self, duration_s: float) -> None:
        """Handle the commit of the decisions of a cycle, which took this long."""
        ...


class DecisionObserver(Protocol):
    """Observes committed decisions."""

    def observe_decision(self, record: JobRecord, instruction: Instruction, started_ns: int) -> None:
        """Handle a committed decision; its cycle began at ``started_ns``."""
        ...
