"""One decision over a pool: a single pass that sees its own effects, on a snapshot that is rolled back in the end.

In this order: gangs that a node rejected are taken down, sizes asked for by hand are followed, the queue is served, and what then is left
goes to proposals to grow.
"""

from __future__ import annotations

import msgspec

from muster_core.facts import Assignment
from muster_core.models import JobRecord, Reason
from muster_core.placement import Gang, Hold, Shortfall, Snapshot, demand_of, place, to_reason
from muster_core.queues import reasons
from muster_core.queues.index import PoolIndex
from muster_core.queues.instructions import Evict, Instruction, Place, Resize, Wait
from muster_core.queues.lines import Line
from muster_core.queues.requests import Requests
from muster_core.queues.resizing import BY_HAND, grow, reachable, resizable, shrink, size_of

_SHORTEST_RETELL_US = 1_000_000
_RETELL_US_PER_JOB = 5_000
_WAITS_AT_ONCE = 256


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass decided.

    ``refused`` are the jobs whose proposals found no room; ``retell_at`` is the instant (µs) at which more is to be told, if any.
    """

    instructions: tuple[Instruction, ...]
    refused: tuple[str, ...]
    retell_at: int | None


class Decision:
    """A pass over the pool at ``now`` (µs); use once."""

    def __init__(
        self,
        *,
        index: PoolIndex,
        requests: Requests,
        feasible: dict[Gang, bool],
        told_at: dict[str, int],
        now: int,
    ) -> None:
        self._index = index
        self._requests = requests
        self._feasible = feasible
        self._told_at = told_at
        self._now = now
        self._snapshot: Snapshot = index.snapshot
        self._done: list[Instruction] = []
        self._touched: set[str] = set()
        self._blocked: dict[Gang, Reason] = {}
        self._refused: list[str] = []
        self._retell_at: int | None = None

    def run(self) -> Outcome:
        """Decide; the index and the snapshot are as before afterwards."""
        mark = self._snapshot.checkpoint()
        try:
            self._evict_rejected()
            self._follow_hands()
            self._serve_queue()
            self._weigh_proposals()
            self._tell_waiting()
        finally:
            self._snapshot.rollback(mark)
        return Outcome(
            instructions=tuple(self._done), refused=tuple(self._refused), retell_at=self._retell_at
        )

    def _evict_rejected(self) -> None:
        for job_id in sorted(self._index.rejected):
            record = self._index.records[job_id]
            self._say(Evict(job_id=job_id, attempt=record.attempt, reason=reasons.rejected_by_node(record)))

    def _follow_hands(self) -> None:
        for (job_id, role), target in sorted(self._requests.by_hand.items()):
            record = self._index.records[job_id]
            wanted = reachable(record, role, target)
            if wanted is None or job_id in self._touched or not resizable(record):
                continue
            size = size_of(record, role)
            if wanted > size:
                self._resize(record, grow(record, role, wanted, self._snapshot, policy=BY_HAND))
            elif wanted < size:
                self._resize(record, shrink(record, role, wanted, policy=BY_HAND))

    def _serve_queue(self) -> None:
        for (_, _, job_id), gang in self._index.lines.walk(self._blocked):
            record = self._index.records[job_id]
            if self._index.delayed.get(job_id, 0) > self._now or self._index.holder_of_name(record):
                continue
            found = place(gang, self._snapshot, feasible=self._feasible.get(gang))
            if isinstance(found, Shortfall):
                self._feasible[gang] = found.feasible_when_empty
                self._blocked[gang] = to_reason(found)
                continue
            attempt = record.attempt + 1
            self._hold(record, attempt, found.replicas)
            self._say(
                Place(
                    job_id=job_id,
                    attempt=attempt,
                    generation=1,
                    replicas=found.replicas,
                    reason=reasons.placed(found),
                )
            )

    def _weigh_proposals(self) -> None:
        for job_id, proposal in self._requests.proposals.items():
            record = self._index.records[job_id]
            if job_id in self._touched:
                continue
            resize = grow(
                record,
                proposal.role,
                proposal.target,
                self._snapshot,
                reason=proposal.reason,
                policy=proposal.policy,
            )
            if resize is None:
                self._refused.append(job_id)
            self._resize(record, resize)

    def _tell_waiting(self) -> None:
        """Tell those who wait why, where that changed: a new code at once, new numbers only so often that the bus can bear it."""
        urgent: list[Wait] = []
        renewed: list[Wait] = []
        for job_id in sorted(self._index.suspended):
            self._consider(self._index.records[job_id], reasons.suspended(), urgent, renewed)
        for line in self._index.lines:
            self._consider_line(line, urgent, renewed)
        told = (urgent + renewed)[:_WAITS_AT_ONCE]
        if len(urgent) + len(renewed) > len(told):
            self._retell_at = self._now
        self._done.extend(told)

    def _consider_line(self, line: Line, urgent: list[Wait], renewed: list[Wait]) -> None:
        short = self._blocked.get(line.gang)
        if short is not None and line.told is not None and reasons.same(line.told, short):
            return
        all_told = True
        for _, _, job_id in line.keys:
            record = self._index.records[job_id]
            holder = self._index.holder_of_name(record)
            reason = reasons.name_in_use(record, holder) if holder else short
            delayed = self._index.delayed.get(job_id, 0) > self._now
            if delayed or reason is None or job_id in self._touched:
                all_told = False
            elif holder or not reasons.same(record.reason, reason):
                all_told = False
                self._consider(record, reason, urgent, renewed)
        line.told = short if all_told else None

    def _consider(self, record: JobRecord, reason: Reason, urgent: list[Wait], renewed: list[Wait]) -> None:
        wait = Wait(job_id=record.job_id, reason=reason)
        known = record.reason
        if (
            known is None
            or known.code != reason.code
            or (reason.code == reasons.NAME_IN_USE and known.message != reason.message)
        ):
            urgent.append(wait)
        elif known.numbers != reason.numbers:
            every = max(_SHORTEST_RETELL_US, _RETELL_US_PER_JOB * len(self._index.waiting))
            due = self._told_at.get(record.job_id, 0) + every
            if due <= self._now:
                renewed.append(wait)
            elif self._retell_at is None or due < self._retell_at:
                self._retell_at = due

    def _resize(self, record: JobRecord, resize: Resize | None) -> None:
        if resize is not None:
            self._hold(record, resize.attempt, resize.added)
            self._say(resize)

    def _hold(self, record: JobRecord, attempt: int, replicas: tuple[Assignment, ...]) -> None:
        for one in replicas:
            role = record.job.role(one.role) if record.job else None
            if role is not None:
                demand = demand_of(role.template_of(one.index).requests)
                key = (record.job_id, attempt, one.role, one.index)
                self._snapshot.hold(key, Hold(one.node, demand, one.gpus))

    def _say(self, instruction: Instruction) -> None:
        self._done.append(instruction)
        self._touched.add(instruction.job_id)
