"""The order of a queue, and when a job in it may start.

First in, first out with skip: priority, then time of arrival; a job that does not fit does not block those behind it.

Those who wait, in lines of equal gangs of one account, so that a gang that does not fit is tried once and not once a job.

With ten thousand jobs in the queue there are few different gangs: a decision costs what the gangs cost, not what the jobs do.

Who waits for which build, and what became of the builds that have ended.

A build's record is forgotten sooner than the jobs that it was for: how it ended is kept here, and what was never heard of is told from it.

Whose turn it is: between queues by share, within one by its policy.

At every level of the tree goes first who is still within what it is guaranteed, then who has the lowest dominant share for its weight.
What a turn changes lies on one path from the top, so that only this path is looked at again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sized
from typing import NamedTuple

from muster_core.lifecycle.builds import awaits_build, is_build
from muster_core.models import JobRecord, Phase, Reason
from muster_core.scheduling import reasons
from muster_core.scheduling.placement import Gang
from muster_core.scheduling.queues.quota import (
    Account,
    Amounts,
    QuotaLedger,
    ShareKey,
    gang_amounts,
    largest_allowed,
    minimum_gang,
)
from muster_core.scheduling.reasons import EndedBuild

QueueKey = tuple[int, int, str]
"""Sorts jobs as they are tried: priority descending, then arrival (µs), then job id."""


def queue_key(record: JobRecord) -> QueueKey:
    """The place of a validated job among those that wait."""
    return (-record.job.priority if record.job else 0, record.queued_at, record.job_id)


def drained(record: JobRecord) -> bool:
    """Whether every replica of earlier attempts has ended, so that none can be in two places."""
    return all(replica.ended for replica in record.replicas)


def ready_at(record: JobRecord) -> int:
    """The instant (µs) from which a drained job may start: 0 for at once."""
    return record.not_before


class SchedulingKey(NamedTuple):
    """What jobs of one line have in common. ``bound_s`` is how long each may run at most, None where nothing says so."""

    account: Account
    gang: Gang
    bound_s: int | None = None

    @property
    def queue(self) -> str:
        """The queue."""
        return self.account[0]


class ClassDiagnosis(NamedTuple):
    """The ``reason`` for which a line found no room at ``at`` (µs), None where it found some after all; it holds as long as ``basis`` is
    the same, None: for this once."""

    at: int
    basis: Hashable
    reason: Reason | None


class SchedulingClass:
    """Jobs of one shape, in order. ``told`` is the reason that all of them are known to have been told, ``oldest`` the start (µs) of the
    longest wait among them where nothing but room keeps any of them, ``look`` why there was no room when that was looked at last; each
    None where that is not known. ``unheard``: since the line was last considered, somebody has come who was not told anything yet."""

    __slots__ = ("keys", "look", "oldest", "shape", "told", "unheard")

    def __init__(self, shape: SchedulingKey) -> None:
        self.shape = shape
        self.keys: list[QueueKey] = []
        self.told: Reason | None = None
        self.oldest: int | None = None
        self.look: ClassDiagnosis | None = None
        self.unheard = False


class SchedulingClasses:
    """Every job that may start as soon as it fits, by shape."""

    def __init__(self) -> None:
        self._lines: dict[SchedulingKey, SchedulingClass] = {}
        self._places: dict[str, tuple[SchedulingClass, QueueKey]] = {}

    def __len__(self) -> int:
        return len(self._places)

    @property
    def shapes(self) -> Sized:
        """The different shapes."""
        return self._lines.keys()

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._places

    def __iter__(self) -> Iterator[SchedulingClass]:
        """The lines by their first job."""
        return iter(sorted(self._lines.values(), key=lambda line: line.keys[0]))

    def class_of(self, job_id: str) -> SchedulingClass:
        """The line that a job waits in; raises KeyError where it waits in none."""
        return self._places[job_id][0]

    def put(self, job_id: str, key: QueueKey, shape: SchedulingKey, *, heard: bool) -> None:
        """Let a job wait, or renew what it asks for; ``heard`` says whether it was ever told a reason."""
        self.drop(job_id)
        line = self._lines.get(shape)
        if line is None:
            line = self._lines[shape] = SchedulingClass(shape)
        insort(line.keys, key)
        line.told = line.oldest = None
        line.unheard = line.unheard or not heard
        self._places[job_id] = (line, key)

    def drop(self, job_id: str) -> None:
        """Let a job wait no more; nothing happens where it does not."""
        place = self._places.pop(job_id, None)
        if place is None:
            return
        line, key = place
        line.oldest = None
        del line.keys[bisect_left(line.keys, key)]
        if not line.keys:
            del self._lines[line.shape]

    def retell(self, job_id: str) -> None:
        """Forget that the job's line has been told its reason, and how long it waits."""
        place = self._places.get(job_id)
        if place is not None:
            place[0].told = place[0].oldest = None


_ENDS_KEPT = 50_000


class BuildDependencies:
    """``blocked`` has, by job id, the reason of every job that may not start because of its build, ``untold`` those not told of it yet."""

    def __init__(self, records: Mapping[str, JobRecord]) -> None:
        self.blocked: dict[str, Reason] = {}
        self.untold: set[str] = set()
        self._records = records
        self._users: dict[str, set[str]] = {}
        self._ends: dict[str, EndedBuild] = {}

    def note_end(self, record: JobRecord) -> None:
        """Keep how a build ended; other records change nothing."""
        if not record.terminal or not (is_build(record) or record.job_id in self._users):
            return
        message = record.reason.message if record.reason else ""
        self._ends[record.job_id] = EndedBuild(name=record.name, phase=record.phase, message=message)
        if len(self._ends) > _ENDS_KEPT:
            del self._ends[next(iter(self._ends))]

    def users(self, build: str) -> tuple[str, ...]:
        """The jobs that wait for a build."""
        return tuple(self._users.get(build, ()))

    def block(self, record: JobRecord) -> bool:
        """Whether a waiting job may not start because of its build; it is remembered so."""
        reason = self._reason(record) if awaits_build(record) else None
        if reason is None:
            return False
        job_id = record.job_id
        self._users.setdefault(record.built_by, set()).add(job_id)
        self.blocked[job_id] = reason
        if record.reason is None or record.reason.code != reason.code:
            self.untold.add(job_id)
        return True

    def release(self, record: JobRecord) -> None:
        """Forget that a job waits for its build."""
        self.blocked.pop(record.job_id, None)
        self.untold.discard(record.job_id)
        users = self._users.get(record.built_by)
        if users is not None:
            users.discard(record.job_id)
            if not users:
                del self._users[record.built_by]

    def explain(self, record: JobRecord) -> Reason:
        """Why a blocked job waits, with where its build stands now."""
        build = self._records.get(record.built_by)
        if build is not None and not build.terminal:
            return reasons.build_in_hand(build)
        return self.blocked[record.job_id]

    def _reason(self, record: JobRecord) -> Reason | None:
        end = self._ends.get(record.built_by)
        if end is not None:
            return None if end.phase is Phase.SUCCEEDED else reasons.build_failed(record.built_by, end)
        build = self._records.get(record.built_by)
        return (
            reasons.build_failed(record.built_by, None) if build is None else reasons.waiting_for_build(build)
        )


Rank = tuple[int, int, ShareKey]
"""Lower goes first: 0 where guaranteed else 1, the share by weight, the name."""


class _Lane:
    """The lines of one account, merged in the order of their jobs."""

    def __init__(self, account: Account, above: _Node) -> None:
        self.account = account
        self.above = above
        self.node: ShareKey = account
        self._lines: list[SchedulingClass] = []
        self._heap: list[tuple[QueueKey, int, int]] = []

    def add(self, line: SchedulingClass) -> None:
        heapq.heappush(self._heap, (line.keys[0], len(self._lines), 0))
        self._lines.append(line)

    def first(self) -> SchedulingClass | None:
        return self._lines[self._heap[0][1]] if self._heap else None

    def take(self) -> tuple[QueueKey, SchedulingClass, int, int]:
        key, position, at = heapq.heappop(self._heap)
        return key, self._lines[position], position, at

    def go_on(self, position: int, at: int) -> None:
        keys = self._lines[position].keys
        if at + 1 < len(keys):
            heapq.heappush(self._heap, (keys[at + 1], position, at + 1))

    def close(self) -> None:
        self._heap.clear()


class _Node:
    """A queue with those of its children that have somebody waiting; the top has no ``queue``."""

    def __init__(self, queue: str, above: _Node | None) -> None:
        self.queue = queue
        self.above = above
        self.node: ShareKey = (queue,)
        self.children: list[_Node | _Lane] = []
        self.ranks: dict[ShareKey, Rank | None] = {}
        self.lane: _Lane | None = None
        self.fresh = False


class AdmissionOrder:
    """The turns of one pass over ``lines``; ``ledger`` is what is held, and may change between turns for the account whose turn it was."""

    def __init__(self, lines: Iterable[SchedulingClass], ledger: QuotaLedger) -> None:
        self._ledger = ledger
        self._nodes: dict[str, _Node] = {"": _Node("", None)}
        lanes: dict[Account, _Lane] = {}
        for line in lines:
            account = line.shape.account
            lane = lanes.get(account)
            if lane is None:
                above = self._node(account[0])
                lane = lanes[account] = _Lane(account, above)
                above.children.append(lane)
            lane.add(line)

    def walk(
        self, blocked: Container[SchedulingClass], closed: Container[Account]
    ) -> Iterator[tuple[str, SchedulingClass]]:
        """Every job (id and line) in the order in which they are tried.

        Jobs behind one whose line has been put into ``blocked`` meanwhile are left out, and all of an account in ``closed``.
        """
        top = self._nodes[""]
        while (lane := self._next(top)) is not None:
            (_, _, job_id), line, position, at = lane.take()
            yield job_id, line
            if lane.account in closed:
                lane.close()
            elif line not in blocked:
                lane.go_on(position, at)
            self._touch(lane)

    def _node(self, queue: str) -> _Node:
        node = self._nodes.get(queue)
        if node is None:
            above = self._node(self._ledger.tree.specs[queue].parent)
            node = self._nodes[queue] = _Node(queue, above)
            above.children.append(node)
        return node

    def _touch(self, lane: _Lane) -> None:
        child: _Lane | _Node = lane
        while (above := child.above) is not None:
            above.ranks.pop(child.node, None)
            above.fresh = False
            child = above

    def _next(self, node: _Node) -> _Lane | None:
        """The lane below ``node`` whose turn it is; None where nobody waits there any more."""
        if not node.fresh:
            node.fresh = True
            best: tuple[Rank, _Lane] | None = None
            for child in node.children:
                lane = self._next(child) if isinstance(child, _Node) else child
                rank = self._rank(node, child, lane)
                if rank is not None and lane is not None and (best is None or rank < best[0]):
                    best = (rank, lane)
            node.lane = best[1] if best else None
        return node.lane

    def _rank(self, node: _Node, child: _Node | _Lane, lane: _Lane | None) -> Rank | None:
        if child.node in node.ranks:
            return node.ranks[child.node]
        line = lane.first() if lane is not None else None
        if line is None:
            rank = None
        elif len(node.children) == 1:
            rank = (0, 0, child.node)
        elif isinstance(child, _Lane):
            rank = (1, self._ledger.share(child.node), child.node)
        else:
            covered = self._ledger.within_guarantee(child.queue, gang_amounts(minimum_gang(line.shape.gang)))
            share = self._ledger.share(child.node) // self._ledger.tree.specs[child.queue].weight
            rank = (0 if covered else 1, share, child.node)
        node.ranks[child.node] = rank
        return rank


def gang_within_limits(shape: SchedulingKey, ledger: QuotaLedger) -> Gang | Reason:
    """The gang as large as the limits of its queue allow, or why not even its floor is allowed."""

    def allowed(amounts: Amounts) -> bool:
        return ledger.exceeded_limit(shape.queue, amounts) is None

    return largest_allowed(shape.gang, allowed) or limit_reason(shape, ledger)


def limit_reason(shape: SchedulingKey, ledger: QuotaLedger) -> Reason:
    """Which limit keeps the floor of ``shape`` from starting; call it only where one does."""
    needed = gang_amounts(minimum_gang(shape.gang))
    exceeded_limit = ledger.exceeded_limit(shape.queue, needed)
    queue, resource = exceeded_limit or (shape.queue, "")
    return reasons.queue_limit(
        queue,
        resource,
        limit=ledger.limit(queue, resource),
        held=ledger.held((queue,)).get(resource, 0),
        needed=needed[resource],
    )


def exceeds_limit_alone(shape: SchedulingKey, ledger: QuotaLedger) -> bool:
    """Whether the floor is above a limit even when its queues hold nothing."""
    return ledger.exceeds_limit_alone(shape.queue, gang_amounts(minimum_gang(shape.gang)))
