"""What the planning loop needs of the bus."""

from __future__ import annotations

from typing import Protocol

from muster_core.events import ScaleProposed
from muster_core.models import JobRecord


class ProposalPublisher(Protocol):
    """Publishes proposals."""

    async def publish(self, record: JobRecord, event: ScaleProposed, began_ns: int) -> None:
        """Publish a proposal for the job of ``record``; returns when it is durable.

        Args:
            record: The record of the job to resize.
            event: The proposal.
            began_ns: When its plan began, in ns since the epoch.
        """
        ...
