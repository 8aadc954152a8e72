"""What a pool's scheduler decides, in the imperative; each becomes an event once it is committed."""

from __future__ import annotations

import msgspec

from muster_core.events import Assignment, JobEvicted, JobPlaced, JobResized, JobWaiting, ReplicaRef
from muster_core.models import Reason


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Start the whole gang as ``attempt``."""

    job_id: str
    attempt: int
    generation: int
    replicas: tuple[Assignment, ...]
    reason: Reason

    def to_event(self, pool: str) -> JobPlaced:
        """The event that it becomes."""
        return JobPlaced(
            attempt=self.attempt,
            generation=self.generation,
            pool=pool,
            replicas=self.replicas,
            reason=self.reason,
        )


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """Change the membership of a running gang to ``generation``; survivors are not touched.

    ``for_job`` is the waiting job that is to have the room of those who leave, if any; ``avoid`` the nodes that took replicas of it.
    """

    job_id: str
    attempt: int
    generation: int
    reason: Reason
    added: tuple[Assignment, ...] = ()
    removed: tuple[ReplicaRef, ...] = ()
    policy: str = ""
    for_job: str = ""
    avoid: tuple[str, ...] = ()

    def to_event(self, pool: str) -> JobResized:
        """The event that it becomes; ``pool`` does not show in it."""
        del pool
        return JobResized(
            attempt=self.attempt,
            generation=self.generation,
            reason=self.reason,
            added=self.added,
            removed=self.removed,
            policy=self.policy,
            for_job=self.for_job,
            avoid=self.avoid,
        )


class Evict(msgspec.Struct, frozen=True, kw_only=True):
    """Take ``attempt`` down as a whole; the job goes back to its queue. ``avoid`` are the nodes that failed it."""

    job_id: str
    attempt: int
    reason: Reason
    avoid: tuple[str, ...] = ()

    def to_event(self, pool: str) -> JobEvicted:
        """The event that it becomes; ``pool`` does not show in it."""
        del pool
        return JobEvicted(attempt=self.attempt, reason=self.reason, avoid=self.avoid)


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """Tell why the job cannot start now."""

    job_id: str
    reason: Reason

    def to_event(self, pool: str) -> JobWaiting:
        """The event that it becomes; ``pool`` does not show in it."""
        del pool
        return JobWaiting(reason=self.reason)


Instruction = Place | Resize | Evict | Wait
"""Everything that a decision may consist of."""
