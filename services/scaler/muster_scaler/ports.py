"""What the handlers need."""

from __future__ import annotations

from typing import Protocol

from muster_core.autoscaling import ScaleProposal
from muster_core.models import JobRecord


class Proposals(Protocol):
    """Where proposals go."""

    async def publish(self, record: JobRecord, proposal: ScaleProposal, began_ns: int) -> None:
        """Publish one; returns when it is durable. The plan that it comes from began at ``began_ns``."""
        ...
