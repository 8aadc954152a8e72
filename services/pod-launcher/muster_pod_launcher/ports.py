"""What the handlers of pod-launcher need besides a runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from muster_core.events import ReplicasChanged
from muster_core.models import JobRecord, ReplicaRecord


class ReplicaEvents(Protocol):
    """Where what the runtime saw goes."""

    async def publish(self, record: JobRecord, event: ReplicasChanged) -> None:
        """Publish it, once however often it is asked; returns when it is durable."""
        ...


Run = tuple[int, str, int, int]
"""One run of a replica within its job: attempt, role, index, restart."""


class Story(Protocol):
    """Where the spans of a job's replicas go."""

    def traceparent(self, record: JobRecord, replica: ReplicaRecord) -> str:
        """The span that a replica runs in, for it to continue; known before it starts. Empty when the job has no trace."""
        ...

    def tell(self, record: JobRecord, event: ReplicasChanged, began: Mapping[Run, int]) -> None:
        """Record the spans that these changes have ended.

        ``began`` is when each run began (µs since 1970, 0 where it is not known): the record may not have heard of it yet.
        """
        ...
