"""One term of a leader: look at the pool whenever it changed or a wait is over, and propose. Never allocate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from muster_core.elasticity import PoolView, ScaleProposal, view_of
from muster_core.facts import CapacityChanged, NodeChanged
from muster_core.models import JobRecord, Node
from muster_runtime.logs import fields
from muster_scaler.ports import Proposals

log = logging.getLogger(__name__)

_US = 1_000_000
_ASK_AGAIN_S = 15
_SETTLE_S = 0.05

Plan = Callable[[PoolView, int], Sequence[ScaleProposal]]
NextCheck = Callable[[PoolView, int], int | None]


class Term:
    """A leader's term; ``records`` is kept by whoever folds the facts."""

    def __init__(
        self,
        *,
        records: Mapping[str, JobRecord],
        proposals: Proposals,
        plan: Plan,
        next_check: NextCheck,
        clock: Callable[[], int],
    ) -> None:
        self._records = records
        self._proposals = proposals
        self._plan = plan
        self._next_check = next_check
        self._clock = clock
        self._nodes: dict[str, Node] = {}
        self._capacity: CapacityChanged | None = None
        self._woken = asyncio.Event()
        self._asked: dict[str, tuple[tuple[int, int, int], int]] = {}

    def observe_pool(self, fact: NodeChanged | CapacityChanged) -> None:
        """Take in the last word on a node, or on the pool."""
        match fact:
            case NodeChanged(gone=True):
                self._nodes.pop(fact.node.name, None)
            case NodeChanged():
                self._nodes[fact.node.name] = fact.node
            case CapacityChanged():
                self._capacity = fact
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
        # Facts come in bursts; one look serves them all.
        await asyncio.sleep(_SETTLE_S)

    async def _look(self) -> int | None:
        began_ns = time.time_ns()
        now = self._clock()
        view = view_of(records=self._records.values(), nodes=self._nodes.values(), capacity=self._capacity)
        again: list[int] = []
        for proposal in self._plan(view, now):
            due = self._due(proposal, now)
            if due > now:
                again.append(due)
                continue
            record = self._records[proposal.job_id]
            await self._proposals.publish(record, proposal, began_ns)
            self._asked[proposal.job_id] = (_what(proposal), now)
            log.info(
                "proposed: %s", proposal.reason.message, extra=fields(job=record.name, job_id=record.job_id)
            )
        self._asked = {job_id: asked for job_id, asked in self._asked.items() if job_id in self._records}
        if (at := self._next_check(view, now)) is not None:
            again.append(at)
        return min(again, default=None)

    def _due(self, proposal: ScaleProposal, now: int) -> int:
        """A proposal that was not taken up is not repeated at once: whoever decides may have had a reason."""
        asked = self._asked.get(proposal.job_id)
        if asked is None or asked[0] != _what(proposal):
            return now
        return asked[1] + _ASK_AGAIN_S * _US


def _what(proposal: ScaleProposal) -> tuple[int, int, int]:
    return (proposal.attempt, proposal.generation, proposal.target)
