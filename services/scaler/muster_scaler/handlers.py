"""The planning loop of a leader: plan whenever the pool has changed or a check is due, and publish proposals."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence

from muster_core.autoscaling import ElasticSettings, LazyPoolState, ProposalHistory, next_check, plan
from muster_core.events import CapacityChanged, NodeChanged, ScaleProposed, StoredEvent
from muster_core.models import JobRecord, QueueSpec
from muster_service.logs import fields

log = logging.getLogger(__name__)

Publish = Callable[[JobRecord, ScaleProposed, int], Awaitable[None]]
"""Publishes a proposal durably; its plan began at the given time in ns since the epoch."""

_US = 1_000_000
_BURST_S = 0.05
"""How long events gather before one plan for all of them."""
_IDLE_FACTOR = 4
"""How many times as long as a plan takes the loop idles after it: a busy large pool must not occupy a core."""


class PlanningLoop:
    """The planning of one leader's term; ``pool`` is the projection of the pool's events, used for plans only."""

    def __init__(
        self,
        *,
        pool: LazyPoolState,
        publish: Publish,
        settings: ElasticSettings,
        history: ProposalHistory,
        clock: Callable[[], int],
    ) -> None:
        self.pool = pool
        self._publish = publish
        self._settings = settings
        self._history = history
        self._clock = clock
        self._decided_at = 0
        self._woken = asyncio.Event()
        self._took_s = 0.0

    def observe(self, batch: Sequence[StoredEvent]) -> None:
        """Apply events of jobs."""
        for stored in batch:
            self.pool.observe(stored)
        self._woken.set()

    def observe_pool(self, event: NodeChanged | CapacityChanged) -> None:
        """Apply the last state of a node, or the scheduler's totals of the pool."""
        match event:
            case NodeChanged():
                self.pool.observe_node(event)
            case CapacityChanged():
                self._decided_at = event.decided_at
        self._woken.set()

    def apply_queues(self, specs: Iterable[QueueSpec]) -> None:
        """Replace the queues; invalid ones change nothing and are logged."""
        for problem in self.pool.apply_queues(specs):
            log.error("the queues are invalid: %s: %s", problem.path, problem.message)
        self._woken.set()

    async def run(self) -> None:
        """Plan and publish until cancelled."""
        self._woken.set()
        check_at: int | None = None
        while True:
            await self._wait(check_at)
            self._woken.clear()
            check_at = await self._plan()

    async def _wait(self, until: int | None) -> None:
        delay_s = None if until is None else max((until - self._clock()) / _US, 0.0)
        try:
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
        except TimeoutError:
            return
        await asyncio.sleep(max(_BURST_S, _IDLE_FACTOR * self._took_s))

    async def _plan(self) -> int | None:
        """Publish the proposals that are due; return when (µs) to plan again without an event."""
        if not self.pool.has_elastic_jobs:
            self._history.retain(())
            return None
        began_ns, began = time.time_ns(), time.monotonic()
        now, state = self._clock(), self.pool.state()
        planned = plan(state, now, self._settings, decided_at=self._decided_at)
        due, repeat_at = self._history.filter(planned, state.index.version, now)
        check_at = next_check(state, now, self._settings, decided_at=self._decided_at)
        self._took_s = time.monotonic() - began
        for proposal in due:
            record = self.pool.record(proposal.job_id)
            if record is None:
                continue
            await self._publish(record, proposal.event, began_ns)
            log.info(
                "proposed: %s",
                proposal.event.reason.message,
                extra=fields(job=record.name, job_id=record.job_id),
            )
        self._history.retain(state.index.records)
        return min((at for at in (repeat_at, check_at) if at is not None), default=None)
