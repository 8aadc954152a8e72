"""Adapters of a term to the bus and the traces."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from muster_bus import Bus, Fence
from muster_core.events import MANUAL_POLICY, CapacityChanged, JobResized
from muster_core.models import JobRecord, Reason
from muster_core.scheduling import Instruction, Place, Resize, Wait
from muster_events import spans
from muster_events.catalogue import SCHEDULER
from muster_events.codec import job_message, pool_message
from muster_service.trace_context import SpanRef, extract, span_ref
from muster_service.tracing import Telemetry

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
    """Records the spans ``queued`` (the wait), ``place`` (the cycle) and ``resize``.

    ``queue_of`` returns the effective queue of a job.
    """

    def __init__(self, telemetry: Telemetry, queue_of: Callable[[JobRecord], str]) -> None:
        self._telemetry = telemetry
        self._queue_of = queue_of

    def observe_decision(self, record: JobRecord, instruction: Instruction, started_ns: int) -> None:
        """See ``DecisionObserver``."""
        root = extract({"traceparent": record.trace})
        if root is None:
            return
        now_ns = time.time_ns()
        attributes = self._attributes(record)
        match instruction:
            case Place(attempt=attempt, replicas=replicas):
                attributes["muster.attempt"] = attempt
                waited_from = record.waiting_since * _NS_PER_US
                self._telemetry.record(
                    "queued",
                    parent=root,
                    key=spans.queued(record.job_id, attempt),
                    start_ns=waited_from,
                    end_ns=max(started_ns, waited_from),
                    attributes=attributes | {"muster.reason": record.reason.message if record.reason else ""},
                )
                nodes = sorted({assignment.node for assignment in replicas})
                self._telemetry.record(
                    "place",
                    parent=root,
                    key=spans.place(record.job_id, attempt),
                    start_ns=started_ns,
                    end_ns=now_ns,
                    attributes=attributes
                    | {"muster.nodes": ",".join(nodes), "muster.replicas": len(replicas)},
                )
            case Resize():
                self._resized(record, instruction, root=root, started_ns=started_ns, ended_ns=now_ns)
            case _:
                return

    def observe_resize(self, record: JobRecord, event: JobResized, at_ns: int) -> None:
        """Record the ``resize`` span of a resize by a previous leader at ``at_ns``."""
        root = extract({"traceparent": record.trace})
        if root is not None:
            self._resized(record, event, root=root, started_ns=at_ns, ended_ns=at_ns)

    def _attributes(self, record: JobRecord) -> dict[str, str | int]:
        return {
            "muster.job": record.name,
            "muster.job_id": record.job_id,
            "muster.queue": self._queue_of(record),
        }

    def _resized(
        self, record: JobRecord, change: Resize | JobResized, *, root: SpanRef, started_ns: int, ended_ns: int
    ) -> None:
        # The resize follows a proposal, whose span the scaler records under this key.
        why = change.reason.message
        proposed = span_ref(root, spans.propose(record.job_id, change.attempt, change.generation - 1, why))
        self._telemetry.record(
            "resize",
            parent=root if change.policy == MANUAL_POLICY else proposed,
            key=spans.resize(record.job_id, change.attempt, change.generation),
            start_ns=started_ns,
            end_ns=ended_ns,
            attributes=self._attributes(record)
            | {
                "muster.attempt": change.attempt,
                "muster.generation": change.generation,
                "muster.policy": change.policy,
                "muster.reason": why,
                "muster.added": len(change.added),
                "muster.removed": len(change.removed),
            }
            | _gain(change.reason),
        )


def _gain(reason: Reason) -> dict[str, int]:
    """Return the expected gain of a resize in thousandths of a worker, if its policy computed it."""
    before, after = (reason.numbers.get(f"speed_up.{when}") for when in ("from", "to"))
    return {} if before is None or after is None else {"muster.gain": after - before}
