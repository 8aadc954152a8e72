"""What the handlers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from muster_core.events import CommandRequested, JobRejected, JobSubmitted, JobValidated


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that is durable: the first of its request id, which is this one unless ``duplicate``."""

    event: JobSubmitted
    sequence: int
    traceparent: str
    duplicate: bool = False


class RequestIdTaken(Exception):
    """The request id was used for a submission of fewer parts; ``job_id`` is one of its jobs."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id


class Submissions(Protocol):
    """Where submissions and commands go, and where their verdicts come from."""

    async def record(self, submissions: Sequence[JobSubmitted]) -> list[Recorded]:
        """Make them durable, all or none, once for each job id. Raises ``RequestIdTaken`` where only some of them are known."""
        ...

    async def verdict(self, job_id: str, *, wait_s: float) -> JobValidated | JobRejected | None:
        """What spec-validator said of a submission; ``None`` when it has said nothing within the wait."""
        ...

    async def command(self, commands: Mapping[str, CommandRequested]) -> int:
        """Make commands durable by job id, all or none, each once for its request id; answers the last one's sequence."""
        ...
