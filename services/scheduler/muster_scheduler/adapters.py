"""The bus and the trace, as the handlers want them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from muster_core.facts import CapacityChanged
from muster_core.models import JobRecord
from muster_core.queues import BY_HAND, Instruction, Place, Resize, Wait
from muster_events import spans
from muster_events.catalogue import SCHEDULER
from muster_events.codec import job_message, pool_message
from muster_runtime.bus import Bus, Fence
from muster_runtime.telemetry import Telemetry
from muster_runtime.trace_context import extract, span_ref

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
                instruction.to_fact(self._pool),
                source=SCHEDULER,
                traceparent=record.trace,
                after=record.folded,
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
    """``queued`` for as long as the wait, ``place`` for as long as the decision, ``resize`` for a growth or shrink."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry

    def tell(self, record: JobRecord, instruction: Instruction, began_ns: int) -> None:
        """See ``Story``."""
        root = extract({"traceparent": record.trace})
        if root is None:
            return
        now_ns = time.time_ns()
        about: dict[str, str | int] = {
            "muster.job": record.name,
            "muster.job_id": record.job_id,
            "muster.queue": (record.job.queue if record.job else "") or "default",
        }
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
            case Resize(attempt=attempt, generation=generation, reason=reason, policy=policy):
                # The decision follows from a proposal, whose span the scaler records under this key.
                proposed = span_ref(root, spans.propose(record.job_id, attempt, generation - 1))
                self._telemetry.record(
                    "resize",
                    parent=root if policy == BY_HAND else proposed,
                    key=spans.resize(record.job_id, attempt, generation),
                    start_ns=began_ns,
                    end_ns=now_ns,
                    attributes=about
                    | {
                        "muster.attempt": attempt,
                        "muster.generation": generation,
                        "muster.reason": reason.message,
                    },
                )
            case _:
                return
