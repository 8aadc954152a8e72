"""What the handlers need."""

from __future__ import annotations

from typing import Protocol

from muster_core.events import JobRejected, JobValidated, StoredEvent
from muster_formats.defaults import PlatformDefaults
from muster_spec_validator.judging import Applied


class Verdicts(Protocol):
    """Where the outcome of a validation goes."""

    async def publish(self, submission: StoredEvent, verdict: JobValidated | JobRejected) -> bool:
        """Publish it, once however often it is asked; returns when it is durable.

        Answers False where the submission was judged before: then that verdict stands, whatever this one says.
        """
        ...


class Superseded(Exception):
    """Someone else was first to apply a next version: ``applied``, which is in force now."""

    def __init__(self, applied: Applied) -> None:
        super().__init__(f"version {applied.version} is in force")
        self.applied = applied


class Defaults(Protocol):
    """The platform's defaults."""

    async def in_force(self) -> Applied:
        """What is in force, as far as this copy has heard; waits until it has read them once."""
        ...

    async def refresh(self) -> Applied:
        """What is in force, read anew. Raises ``BusUnavailable``."""
        ...

    async def version(self, version: int) -> Applied | None:
        """One version; ``None`` where there was none. Raises ``BusUnavailable``."""
        ...

    async def store(self, defaults: PlatformDefaults, *, by: str, over: int) -> Applied:
        """Make them the version after ``over``; answers what is in force then.

        Raises ``Superseded`` where there is such a version already, ``BusUnavailable`` where the outcome is unknown.
        """
        ...
