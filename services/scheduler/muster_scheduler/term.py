"""One term of a leader: apply events to the pool's state, run scheduling cycles, commit decisions, and read them as events.

A cycle itself does not change the state. A decision takes effect when its event is read, in stream order; so the leader waits
for its own events before the next cycle, and every reader agrees on a decision that lost a race.

Under load cycles are spaced out: a cycle over the events of 50 ms costs little more than one over those of 5 ms, and the bus
stores fewer batches.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from muster_bus import BusRejected
from muster_core.events import CapacityChanged, NodeChanged, StoredEvent
from muster_core.models import JobRecord, Node, QueueSpec
from muster_core.scheduling import Instruction, Place, PoolState, QueueReport, Resize, Wait
from muster_scheduler.ports import CycleObserver, DecisionLog, DecisionObserver, TotalsPublisher
from muster_scheduler.state_access import StateAccess
from muster_service.logs import fields

T = TypeVar("T")

log = logging.getLogger(__name__)

_US = 1_000_000
_TOTALS_INTERVAL_US = 200_000
_PAUSE_FACTOR = 7
_LONGEST_PAUSE_S = 0.1
"""A cycle is followed by a pause of this many times its CPU time, at most the longest pause."""

_BATCH = 900
"""Decisions in one commit; the bus takes 1,000 messages in a batch."""


class LeaderTerm:
    """A leader's term. ``wait_applied`` waits until the state includes everything up to a sequence.

    Of ``state`` only records and counters may be read at any time; everything else needs ``calculate_with``.
    """

    def __init__(
        self,
        *,
        state: PoolState,
        decisions: DecisionLog,
        totals: TotalsPublisher,
        observer: DecisionObserver,
        cycles: CycleObserver,
        clock: Callable[[], int],
        wait_applied: Callable[[int], Awaitable[None]],
    ) -> None:
        self.state = state
        self.nodes: dict[str, Node] = {}
        self._decisions = decisions
        self._totals = totals
        self._observer = observer
        self._cycles = cycles
        self._clock = clock
        self._wait_applied = wait_applied
        self._woken = asyncio.Event()
        self._published: CapacityChanged | None = None
        self._publish_at = 0
        self._totals_changed = False
        self._rejected_jobs: set[str] = set()
        self._cycle_lock = asyncio.Lock()
        self._access = StateAccess(state)
        self._next_cycle_at = 0.0
        self._queue_report: tuple[QueueReport, ...] = ()

    async def apply_queues(self, specs: Iterable[QueueSpec]) -> None:
        """Replace the queues between two cycles, so that no decision of older queues is committed afterwards."""
        async with self._cycle_lock, self._access.exclusive() as state:
            state.apply_queues(specs)
        self.wake()

    async def calculate_with(self, calculate: Callable[[PoolState], T]) -> T:
        """Return the result of ``calculate``, with exclusive access to the state."""
        return await self._access.in_thread(calculate)

    def queue_report(self) -> tuple[QueueReport, ...]:
        """Return the usage, fair share and waiting jobs of every queue; the last report while a long cycle runs."""
        report = self._access.try_briefly(PoolState.queue_report)
        if report is not None:
            self._queue_report = report
        return self._queue_report

    @property
    def totals(self) -> CapacityChanged | None:
        """The totals of the pool as they were published last."""
        return self._published

    async def observe(self, batch: Sequence[StoredEvent]) -> None:
        """Apply events of jobs."""
        async with self._access.exclusive() as state:
            for stored in batch:
                state.observe(stored)
        self.wake()

    async def observe_settled(self, records: Sequence[JobRecord]) -> None:
        """Take note of settled jobs of the past: of builds that others wait for, and of run times."""
        async with self._access.exclusive() as state:
            for record in records:
                state.observe_settled(record)

    async def observe_node(self, event: NodeChanged) -> None:
        """Apply the report of a node."""
        async with self._access.exclusive() as state:
            state.observe_node(event)
        if event.gone:
            self.nodes.pop(event.node.name, None)
        else:
            self.nodes[event.node.name] = event.node
        self.wake()

    def wake(self) -> None:
        """Run a cycle as soon as possible."""
        self._totals_changed = True
        self._woken.set()

    async def lead(self) -> None:
        """Run a cycle after every change, and at the next due time, until cancelled."""
        self.wake()
        while True:
            await self._wait()
            await asyncio.sleep(self._next_cycle_at - time.monotonic())
            self._woken.clear()
            async with self._cycle_lock:
                await self._decide()

    async def _wait(self) -> None:
        instants = [self.state.next_wake(self._clock()), self._publish_at if self._totals_changed else None]
        at = min((instant for instant in instants if instant is not None), default=None)
        delay_s = None if at is None else max((at - self._clock()) / _US, 0.0)
        try:
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _decide(self) -> None:
        started_ns, started = time.time_ns(), time.monotonic()
        decisions, cpu_s = await self._access.in_thread(self._calculate)
        decided = time.monotonic()
        self._cycles.observe_cycle(decided - started)
        self._next_cycle_at = decided + min(_PAUSE_FACTOR * cpu_s, _LONGEST_PAUSE_S)
        instructions = [i for i in decisions if i.job_id not in self._rejected_jobs]
        for first in range(0, len(instructions), _BATCH):
            await self._commit(instructions[first : first + _BATCH], started_ns)
        if instructions:
            self._cycles.observe_commit(time.monotonic() - decided)
        if self._clock() >= self._publish_at:
            await self._publish_totals()

    def _calculate(self, state: PoolState) -> tuple[list[Instruction], float]:
        """Return the decisions, and the CPU seconds of the cycle."""
        started = time.thread_time()
        decisions = state.decide(self._clock())
        return decisions, time.thread_time() - started

    async def _publish_totals(self) -> None:
        # Totals cover all waiting jobs; under load they are published at intervals, not after every cycle.
        capacity = await self.calculate_with(lambda state: state.capacity(self._clock()))
        if capacity != self._published:
            await self._totals.publish(capacity)
            self._published = capacity
        self._publish_at = self._clock() + _TOTALS_INTERVAL_US
        self._totals_changed = False

    async def _commit(self, instructions: Sequence[Instruction], started_ns: int) -> None:
        decisions = [(record, i) for i in instructions if (record := self.state.record(i.job_id)) is not None]
        if not decisions:
            return
        try:
            last = await self._decisions.commit(decisions)
        except BusRejected as error:
            if len(decisions) > 1:
                # One of them cannot be encoded or stored; it must not block the others.
                for one in decisions:
                    await self._commit([one[1]], started_ns)
                return
            record = decisions[0][0]
            self._rejected_jobs.add(record.job_id)
            log.error(
                "the bus rejected a decision: %s", error, extra=fields(job=record.name, job_id=record.job_id)
            )
            return
        for record, instruction in decisions:
            self._observer.observe_decision(record, instruction, started_ns)
            _log(record, instruction)
        await self._wait_applied(last)


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
