"""What the handlers need."""

from __future__ import annotations

from typing import Protocol

from muster_core.facts import JobRejected, JobValidated, Stamped


class Verdicts(Protocol):
    """Where the outcome of a validation goes."""

    async def publish(self, submission: Stamped, verdict: JobValidated | JobRejected) -> None:
        """Publish it, once however often it is asked; returns when it is durable."""
        ...
