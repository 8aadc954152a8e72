"""What the handlers need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from muster_core.events import CapacityChanged
from muster_core.models import JobRecord
from muster_core.scheduling import Instruction


class Decisions(Protocol):
    """Where decisions go: all of them or, when another leader was elected, none. Only reasons to wait, which allocate nothing, may
    be there in part when a commit fails."""

    async def commit(self, decided: Sequence[tuple[JobRecord, Instruction]]) -> int:
        """Commit them; answers the sequence of the last one. Raises ``Fenced``, or ``BusUnavailable`` when nobody knows."""
        ...


class Totals(Protocol):
    """Where the totals of the pool go."""

    async def publish(self, capacity: CapacityChanged) -> None:
        """Publish them."""
        ...


class Story(Protocol):
    """Where the spans of decisions go."""

    def tell(self, record: JobRecord, instruction: Instruction, began_ns: int) -> None:
        """Record the spans that a committed decision has ended; the decision began at ``began_ns``."""
        ...
