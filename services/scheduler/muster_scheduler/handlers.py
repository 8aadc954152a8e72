"""One term of a leader: facts fold into the pool's state, the state decides, decisions are committed and come back as facts.

The state is never changed by a decision itself. A decision counts once its fact is read, in the order of the stream; so the leader
waits for its own facts before it decides again, and a decision that lost a race is seen by everyone to have lost it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from muster_core.facts import CapacityChanged, NodeChanged, Stamped
from muster_core.models import JobRecord, Node, QueueSpec
from muster_core.queues import Instruction, Place, PoolState, Resize, Wait
from muster_runtime.bus import Refused
from muster_runtime.logs import fields
from muster_scheduler.ports import Decisions, Story, Totals

log = logging.getLogger(__name__)

_US = 1_000_000
_TELL_EVERY_US = 200_000
_BATCH = 900
"""Decisions in one commit; the bus takes 1,000 messages in a batch."""


class Term:
    """A leader's term. ``seen`` waits until the state has folded everything up to a sequence."""

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

    async def apply_queues(self, specs: Iterable[QueueSpec]) -> None:
        """Take in other queues between two decisions, so that none is committed under queues that were replaced."""
        async with self._deciding:
            self.state.apply_queues(specs)
        self.wake()

    def observe(self, batch: Sequence[Stamped]) -> None:
        """Fold facts of jobs."""
        for stamped in batch:
            self.state.observe(stamped)
        self.wake()

    def observe_node(self, fact: NodeChanged) -> None:
        """Fold the last word on a node."""
        self.state.observe_node(fact)
        if fact.gone:
            self.nodes.pop(fact.node.name, None)
        else:
            self.nodes[fact.node.name] = fact.node
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
        decided = self.state.decide(self._clock())
        instructions = [i for i in decided if i.job_id not in self._unsayable]
        for first in range(0, len(instructions), _BATCH):
            await self._commit(instructions[first : first + _BATCH], began_ns)
        if self._clock() >= self._tell_at:
            await self._tell()

    async def _tell(self) -> None:
        # Totals go over all that wait; under load they are told now and then, not after every decision.
        capacity = self.state.capacity(self._clock())
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
