"""One term of a leader: events fold into the pool's state, the state decides, decisions are committed and come back as events.

The state is never changed by a decision itself. A decision counts once its event is read, in the order of the stream; so the leader
waits for its own events before it decides again, and a decision that lost a race is seen by everyone to have lost it.

Under load decisions are spaced out: one over the events of 50 ms costs little more than one over those of 5 ms, and the bus has fewer
batches to store.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from muster_bus import Refused
from muster_core.events import CapacityChanged, NodeChanged, StoredEvent
from muster_core.models import JobRecord, Node, QueueSpec
from muster_core.scheduling import Instruction, Place, PoolState, QueueReport, Resize, Wait
from muster_scheduler.ports import Decisions, Story, Totals
from muster_scheduler.thinking import Thinking
from muster_service.logs import fields

T = TypeVar("T")

log = logging.getLogger(__name__)

_US = 1_000_000
_TELL_EVERY_US = 200_000
_REST = 7
_LONGEST_REST_S = 0.1
"""After a decision comes a pause of so many times the CPU time that it took, and never a longer one."""

_BATCH = 900
"""Decisions in one commit; the bus takes 1,000 messages in a batch."""


class Term:
    """A leader's term. ``seen`` waits until the state has folded everything up to a sequence.

    Of ``state`` only records and what was counted may be read at any time; for everything else there is ``ask``.
    """

    def __init__(
        self,
        *,
        state: PoolState,
        decisions: Decisions,
        totals: Totals,
        story: Story,
        clock: Callable[[], int],
        seen: Callable[[int], Awaitable[None]],
    ) -> None:
        self.state = state
        self.nodes: dict[str, Node] = {}
        self._decisions = decisions
        self._totals = totals
        self._story = story
        self._clock = clock
        self._seen = seen
        self._woken = asyncio.Event()
        self._told: CapacityChanged | None = None
        self._tell_at = 0
        self._untold = False
        self._unsayable: set[str] = set()
        self._deciding = asyncio.Lock()
        self._thinking = Thinking(state)
        self._decide_from = 0.0
        self._queue_report: tuple[QueueReport, ...] = ()

    async def apply_queues(self, specs: Iterable[QueueSpec]) -> None:
        """Take in other queues between two decisions, so that none is committed under queues that were replaced."""
        async with self._deciding, self._thinking.turn() as state:
            state.apply_queues(specs)
        self.wake()

    async def ask(self, question: Callable[[PoolState], T]) -> T:
        """The answer to ``question``, worked out while nobody else looks at the state."""
        return await self._thinking.about(question)

    def queue_report(self) -> tuple[QueueReport, ...]:
        """What every queue holds, is due and waits for; as it was when this was asked last, while a long decision is worked out."""
        report = self._thinking.glance(PoolState.queue_report)
        if report is not None:
            self._queue_report = report
        return self._queue_report

    async def observe(self, batch: Sequence[StoredEvent]) -> None:
        """Fold events of jobs."""
        async with self._thinking.turn() as state:
            for stored in batch:
                state.observe(stored)
        self.wake()

    async def observe_node(self, event: NodeChanged) -> None:
        """Fold the last word on a node."""
        async with self._thinking.turn() as state:
            state.observe_node(event)
        if event.gone:
            self.nodes.pop(event.node.name, None)
        else:
            self.nodes[event.node.name] = event.node
        self.wake()

    def wake(self) -> None:
        """Decide as soon as may be."""
        self._untold = True
        self._woken.set()

    async def lead(self) -> None:
        """Decide at every change, and when a restart's delay has passed; until cancelled."""
        self.wake()
        while True:
            await self._wait()
            await asyncio.sleep(self._decide_from - time.monotonic())
            self._woken.clear()
            async with self._deciding:
                await self._decide()

    async def _wait(self) -> None:
        instants = [self.state.next_wake(self._clock()), self._tell_at if self._untold else None]
        at = min((instant for instant in instants if instant is not None), default=None)
        delay_s = None if at is None else max((at - self._clock()) / _US, 0.0)
        try:
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _decide(self) -> None:
        began_ns = time.time_ns()
        decided, cpu_s = await self._thinking.about(self._work_out)
        self._decide_from = time.monotonic() + min(_REST * cpu_s, _LONGEST_REST_S)
        instructions = [i for i in decided if i.job_id not in self._unsayable]
        for first in range(0, len(instructions), _BATCH):
            await self._commit(instructions[first : first + _BATCH], began_ns)
        if self._clock() >= self._tell_at:
            await self._tell()

    def _work_out(self, state: PoolState) -> tuple[list[Instruction], float]:
        """The decision, and the seconds of CPU that it took."""
        began = time.thread_time()
        decided = state.decide(self._clock())
        return decided, time.thread_time() - began

    async def _tell(self) -> None:
        # Totals go over all that wait; under load they are told now and then, not after every decision.
        capacity = await self.ask(lambda state: state.capacity(self._clock()))
        if capacity != self._told:
            await self._totals.publish(capacity)
            self._told = capacity
        self._tell_at = self._clock() + _TELL_EVERY_US
        self._untold = False

    async def _commit(self, instructions: Sequence[Instruction], began_ns: int) -> None:
        decided = [(record, i) for i in instructions if (record := self.state.record(i.job_id)) is not None]
        if not decided:
            return
        try:
            last = await self._decisions.commit(decided)
        except Refused as refused:
            if len(decided) > 1:
                # One of them cannot be said; the others must not wait for it.
                for one in decided:
                    await self._commit([one[1]], began_ns)
                return
            record = decided[0][0]
            self._unsayable.add(record.job_id)
            log.error(
                "a decision was refused by the bus: %s",
                refused,
                extra=fields(job=record.name, job_id=record.job_id),
            )
            return
        for record, instruction in decided:
            self._story.tell(record, instruction, began_ns)
            _log(record, instruction)
        await self._seen(last)


def _log(record: JobRecord, instruction: Instruction) -> None:
    job: dict[str, object] = {"job": record.name, "job_id": record.job_id}
    match instruction:
        case Place(replicas=replicas, attempt=attempt):
            nodes = ",".join(sorted({a.node for a in replicas}))
            log.info("placed", extra=fields(**job, attempt=attempt, replicas=len(replicas), nodes=nodes))
        case Resize(reason=reason, generation=generation):
            log.info("resized: %s", reason.message, extra=fields(**job, generation=generation))
        case Wait(reason=reason):
            log.info("waits: %s", reason.message, extra=fields(**job, code=reason.code))
        case _:
            log.info("evicted: %s", instruction.reason.message, extra=fields(**job))
