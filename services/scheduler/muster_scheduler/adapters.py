"""The bus and the trace, as the handlers want them."""

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
from muster_service.telemetry import Telemetry
from muster_service.trace_context import SpanRef, extract, span_ref

_NS_PER_US = 1000
_FEW = 16
"""Messages, up to which storing them singly costs the broker less than storing a batch."""


class FencedDecisions:
    """See ``Decisions``: one atomic batch, which the bus refuses as a whole once the epoch has moved on.

    A few reasons to wait are said one by one, each under the same fence.
    """

    def __init__(self, *, bus: Bus, fence: Fence, pool: str) -> None:
        self._bus = bus
        self._fence = fence
        self._pool = pool

    async def commit(self, decided: Sequence[tuple[JobRecord, Instruction]]) -> int:
        """See ``Decisions``."""
        messages = [
            job_message(
                record.job_id,
                instruction.to_event(self._pool),
                source=SCHEDULER,
                traceparent=record.trace,
                after=record.applied_sequence,
            )
            for record, instruction in decided
        ]
        if len(messages) <= _FEW and all(isinstance(instruction, Wait) for _, instruction in decided):
            # A reason to wait allocates nothing and needs no other; a small batch would hold up everyone who writes to the stream.
            said = await asyncio.gather(*(self._bus.commit([one], fence=self._fence) for one in messages))
            return max(published.sequence for published in said)
        return (await self._bus.commit(messages, fence=self._fence)).sequence


class BusTotals:
    """See ``Totals``."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def publish(self, capacity: CapacityChanged) -> None:
        """See ``Totals``."""
        await self._bus.publish_once(pool_message(capacity, source=SCHEDULER))


class TraceStory:
    """``queued`` for as long as the wait, ``place`` for as long as the decision, ``resize`` for a growth or shrink.

    ``queue_of`` tells the queue that a job is in, whatever it names.
    """

    def __init__(self, telemetry: Telemetry, queue_of: Callable[[JobRecord], str]) -> None:
        self._telemetry = telemetry
        self._queue_of = queue_of

    def tell(self, record: JobRecord, instruction: Instruction, began_ns: int) -> None:
        """See ``Story``."""
        root = extract({"traceparent": record.trace})
        if root is None:
            return
        now_ns = time.time_ns()
        about = self._about(record)
        match instruction:
            case Place(attempt=attempt, replicas=replicas):
                about["muster.attempt"] = attempt
                waited_from = record.waiting_since * _NS_PER_US
                self._telemetry.record(
                    "queued",
                    parent=root,
                    key=spans.queued(record.job_id, attempt),
                    start_ns=waited_from,
                    end_ns=max(began_ns, waited_from),
                    attributes=about | {"muster.reason": record.reason.message if record.reason else ""},
                )
                nodes = sorted({assignment.node for assignment in replicas})
                self._telemetry.record(
                    "place",
                    parent=root,
                    key=spans.place(record.job_id, attempt),
                    start_ns=began_ns,
                    end_ns=now_ns,
                    attributes=about | {"muster.nodes": ",".join(nodes), "muster.replicas": len(replicas)},
                )
            case Resize():
                self._resized(record, instruction, root=root, began_ns=began_ns, ended_ns=now_ns)
            case _:
                return

    def retell(self, record: JobRecord, event: JobResized, at_ns: int) -> None:
        """Record the ``resize`` of a change of size that another leader has decided at ``at_ns``."""
        root = extract({"traceparent": record.trace})
        if root is not None:
            self._resized(record, event, root=root, began_ns=at_ns, ended_ns=at_ns)

    def _about(self, record: JobRecord) -> dict[str, str | int]:
        return {
            "muster.job": record.name,
            "muster.job_id": record.job_id,
            "muster.queue": self._queue_of(record),
        }

    def _resized(
        self, record: JobRecord, change: Resize | JobResized, *, root: SpanRef, began_ns: int, ended_ns: int
    ) -> None:
        # The decision follows from a proposal, whose span the scaler records under this key.
        why = change.reason.message
        proposed = span_ref(root, spans.propose(record.job_id, change.attempt, change.generation - 1, why))
        self._telemetry.record(
            "resize",
            parent=root if change.policy == MANUAL_POLICY else proposed,
            key=spans.resize(record.job_id, change.attempt, change.generation),
            start_ns=began_ns,
            end_ns=ended_ns,
            attributes=self._about(record)
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
    """What a change of size is expected to gain, in thousandths of one worker, where its policy has weighed it."""
    before, after = (reason.numbers.get(f"speed_up.{when}") for when in ("from", "to"))
    return {} if before is None or after is None else {"muster.gain": after - before}
