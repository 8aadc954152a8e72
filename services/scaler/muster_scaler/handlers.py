"""One term of a leader: look at the pool whenever it changed or a wait is over, and propose. Never allocate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from muster_core.autoscaling import Asked, ElasticSettings, FollowedPool, next_check, plan, view_of_state
from muster_core.events import CapacityChanged, NodeChanged, StoredEvent
from muster_core.models import QueueSpec
from muster_scaler.ports import Proposals
from muster_service.logs import fields

log = logging.getLogger(__name__)

_US = 1_000_000
_SETTLE_S = 0.05
_REST = 4
"""How many times as long as a look takes nothing is looked at after it: a large pool that is never still must not keep a core busy."""


class Term:
    """A leader's term. ``pool`` is the pool as the events tell it, kept for looking at, never to decide."""

    def __init__(
        self,
        *,
        pool: FollowedPool,
        proposals: Proposals,
        settings: ElasticSettings,
        asked: Asked,
        clock: Callable[[], int],
    ) -> None:
        self.pool = pool
        self._proposals = proposals
        self._settings = settings
        self._asked = asked
        self._clock = clock
        self._capacity: CapacityChanged | None = None
        self._woken = asyncio.Event()
        self._took_s = 0.0

    def observe(self, batch: Sequence[StoredEvent]) -> None:
        """Fold events of jobs."""
        for stored in batch:
            self.pool.observe(stored)
        self.wake()

    def observe_pool(self, event: NodeChanged | CapacityChanged) -> None:
        """Take in the last word on a node, or on the pool."""
        match event:
            case NodeChanged():
                self.pool.observe_node(event)
            case CapacityChanged():
                self._capacity = event
        self.wake()

    def apply_queues(self, specs: Iterable[QueueSpec]) -> None:
        """Take in the queues; ones that do not go together change nothing."""
        for problem in self.pool.apply_queues(specs):
            log.error("the queues cannot be taken: %s: %s", problem.path, problem.message)
        self.wake()

    def wake(self) -> None:
        """Look as soon as may be."""
        self._woken.set()

    async def lead(self) -> None:
        """Look and propose, until cancelled."""
        self.wake()
        at: int | None = None
        while True:
            await self._wait(at)
            self._woken.clear()
            at = await self._look()

    async def _wait(self, at: int | None) -> None:
        delay_s = None if at is None else max((at - self._clock()) / _US, 0.0)
        try:
            async with asyncio.timeout(delay_s):
                await self._woken.wait()
        except TimeoutError:
            return
        # Events come in bursts; one look serves them all.
        await asyncio.sleep(max(_SETTLE_S, _REST * self._took_s))

    async def _look(self) -> int | None:
        if not self.pool.may_change:
            self._asked.keep(())
            return None
        began_ns, began = time.time_ns(), time.monotonic()
        now = self._clock()
        view = view_of_state(self.pool.state(), capacity=self._capacity)
        planned = plan(view, now, self._settings)
        news, again = self._asked.sift(planned, view.index.version, now)
        checks = [at for at in (again, next_check(view, now, self._settings)) if at is not None]
        self._took_s = time.monotonic() - began
        for proposal in news:
            record = self.pool.record(proposal.job_id)
            if record is None:
                continue
            await self._proposals.publish(record, proposal, began_ns)
            log.info(
                "proposed: %s", proposal.reason.message, extra=fields(job=record.name, job_id=record.job_id)
            )
        self._asked.keep(view.index.records)
        return min(checks, default=None)
