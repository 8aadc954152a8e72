"""Adapters of a term to the bus and the traces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from muster_bus import Bus, Fence
from muster_core.events import MANUAL_POLICY, CapacityChanged, JobEvicted, JobPlaced, JobResized
from muster_core.models import JobRecord, Reason
from muster_core.scheduling import Evict, Instruction, Place, Resize, Wait
from muster_events import messaging, spans
from muster_events.catalogue import SCHEDULER
from muster_events.codec import job_message, message_id_of, pool_message
from muster_service.trace_context import SpanRef, extract, span_ref
from muster_service.tracing import SpanEvent, SpanLink, Telemetry, failure_event

_NS_PER_US = 1000
_SMALL_BATCH = 16
"""Up to this many messages, single writes cost the broker less than a batch."""


class FencedDecisionLog:
    """Commits decisions as one atomic, fenced batch: the bus rejects all of it after a newer epoch.

    A few ``JobWaiting`` events are published singly, under the same fence.
    """

    def __init__(self, *, bus: Bus, fence: Fence, pool: str) -> None:
        self._bus = bus
        self._fence = fence
        self._pool = pool

    async def commit(self, decisions: Sequence[tuple[JobRecord, Instruction]]) -> int:
        """See ``DecisionLog``."""
        messages = [
            job_message(
                record.job_id,
                instruction.to_event(self._pool),
                source=SCHEDULER,
                traceparent=record.trace,
                after=record.applied_sequence,
            )
            for record, instruction in decisions
        ]
        if len(messages) <= _SMALL_BATCH and all(isinstance(one, Wait) for _, one in decisions):
            # These events are independent; a small batch would block all other writers of the stream.
            commits = await asyncio.gather(*(self._bus.commit([one], fence=self._fence) for one in messages))
            return max(published.sequence for published in commits)
        return (await self._bus.commit(messages, fence=self._fence)).sequence


class BusTotalsPublisher:
    """Publishes the totals on the bus."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def publish(self, capacity: CapacityChanged) -> None:
        """See ``TotalsPublisher``."""
        await self._bus.publish_once(pool_message(capacity, source=SCHEDULER))


class DecisionSpanRecorder:
    """Records the spans ``queued`` (the wait), and ``place``, ``resize`` and ``evict`` (the cycle, which publishes an event).

    ``queue_of`` returns the effective queue of a job.
    """

    def __init__(self, telemetry: Telemetry, queue_of: Callable[[JobRecord], str]) -> None:
        self._telemetry = telemetry
        self._queue_of = queue_of

    def observe_decision(self, record: JobRecord, instruction: Instruction, started_ns: int) -> None:
        """See ``DecisionObserver``."""
        root = self._root(record)
        if root is None:
            return
        now_ns = time.time_ns()
        match instruction:
            case Place():
                self._placed(record, instruction, root=root, started_ns=started_ns, ended_ns=now_ns)
            case Resize():
                self._resized(record, instruction, root=root, started_ns=started_ns, ended_ns=now_ns)
            case Evict():
                self._evicted(record, instruction, root=root, started_ns=started_ns, ended_ns=now_ns)
            case _:
                return

    def observe_earlier(self, record: JobRecord, event: JobPlaced | JobResized, at_ns: int) -> None:
        """Record the span of a decision by a previous leader at ``at_ns``: other spans are its children."""
        root = self._root(record)
        if root is None:
            return
        if isinstance(event, JobPlaced):
            self._placed(record, event, root=root, started_ns=at_ns, ended_ns=at_ns)
        else:
            self._resized(record, event, root=root, started_ns=at_ns, ended_ns=at_ns)

    def _root(self, record: JobRecord) -> SpanRef | None:
        return extract({"traceparent": record.trace}) if self._telemetry.is_exporting else None

    def _attributes(self, record: JobRecord, attempt: int) -> dict[str, str | int]:
        return {
            "muster.job": record.name,
            "muster.job_id": record.job_id,
            "muster.queue": self._queue_of(record),
            "muster.attempt": attempt,
        }

    def _placed(
        self, record: JobRecord, change: Place | JobPlaced, *, root: SpanRef, started_ns: int, ended_ns: int
    ) -> None:
        attributes = self._attributes(record, change.attempt)
        waited_from = record.waiting_since * _NS_PER_US
        # The record of a previous leader's decision may have moved on to the next wait.
        if waited_from and (isinstance(change, Place) or waited_from <= started_ns):
            self._telemetry.record(
                "queued",
                parent=root,
                key=spans.queued(record.job_id, change.attempt),
                start_ns=waited_from,
                end_ns=max(started_ns, waited_from),
                attributes=attributes | {"muster.reason": record.reason.message if record.reason else ""},
            )
        nodes = sorted({assignment.node for assignment in change.replicas})
        event = change.to_event("") if isinstance(change, Place) else change
        self._telemetry.record(
            "place",
            parent=root,
            key=spans.place(record.job_id, change.attempt),
            start_ns=started_ns,
            end_ns=ended_ns,
            role="producer",
            attributes=attributes
            | messaging.published(JobPlaced, message_id_of(record.job_id, event, record.applied_sequence))
            | {"muster.nodes": ",".join(nodes), "muster.replicas": len(change.replicas)},
        )

    def _resized(
        self, record: JobRecord, change: Resize | JobResized, *, root: SpanRef, started_ns: int, ended_ns: int
    ) -> None:
        # The resize follows a proposal, whose span the scaler records under this key.
        why = change.reason.message
        proposed = span_ref(root, spans.propose(record.job_id, change.attempt, change.generation - 1, why))
        is_manual = change.policy == MANUAL_POLICY
        command = extract({"traceparent": record.command_trace}) if is_manual else None
        event = change.to_event("") if isinstance(change, Resize) else change
        self._telemetry.record(
            "resize",
            parent=root if is_manual else proposed,
            key=spans.resize(record.job_id, change.attempt, change.generation),
            start_ns=started_ns,
            end_ns=ended_ns,
            role="producer",
            attributes=self._attributes(record, change.attempt)
            | messaging.published(JobResized, message_id_of(record.job_id, event, record.applied_sequence))
            | {
                "muster.generation": change.generation,
                "muster.policy": change.policy,
                "muster.reason": why,
                "muster.added": len(change.added),
                "muster.removed": len(change.removed),
            }
            | _gain(change.reason),
            links=[SpanLink(command, {"muster.link": "command"})] if command else (),
        )

    def _evicted(
        self, record: JobRecord, change: Evict, *, root: SpanRef, started_ns: int, ended_ns: int
    ) -> None:
        code, message = change.reason.code, change.reason.message
        avoided = ",".join(change.avoid)
        # Only an eviction from nodes that failed the gang is a failure.
        evicted = (
            failure_event("evicted", ended_ns, kind=code, message=message, **{"muster.nodes": avoided})
            if avoided
            else SpanEvent("evicted", ended_ns, {"muster.code": code, "muster.reason": message})
        )
        message_id = message_id_of(record.job_id, change.to_event(""), record.applied_sequence)
        self._telemetry.record(
            "evict",
            parent=root,
            key=spans.evict(record.job_id, change.attempt),
            start_ns=started_ns,
            end_ns=ended_ns,
            role="producer",
            attributes=self._attributes(record, change.attempt)
            | messaging.published(JobEvicted, message_id)
            | {"muster.reason": message},
            status_error=message if avoided else None,
            events=[evicted],
        )


def _gain(reason: Reason) -> dict[str, int]:
    """Return the expected gain of a resize in thousandths of a worker, if its policy computed it."""
    before, after = (reason.numbers.get(f"speed_up.{when}") for when in ("from", "to"))
    return {} if before is None or after is None else {"muster.gain": after - before}
