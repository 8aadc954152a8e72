"""When what runs is expected to end: by its deadline, and by how long jobs of the same name took before.

A memory of the events that were read, no more: who has read fewer of them knows fewer durations, and waits where another would plan.

Whose room becomes free, and in which order: what a waiting gang can wait for.

What runs, in the order in which it is expected to end: what a starved gang can wait for.

A gang waits for the first few of thousands. So they are looked up one after the other, as far as they are asked for.

After how many leavers a gang of equals fits, counted node by node instead of tried.

To try takes as many releases as there are leavers, several times over. But what a leaver gives back changes only its own nodes, and where
all replicas ask the same, the gang fits as soon as the nodes together hold enough of them.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence, Set
from typing import NamedTuple, overload

from muster_core.models import JobRecord, Phase, Strategy
from muster_core.scheduling.placement import AllocationKey, Gang, Placement, Snapshot
from muster_core.scheduling.placement.field import Field
from muster_core.scheduling.placement.room import Need, count, whole_gpus
from muster_core.scheduling.queues import amounts_of, gang_amounts
from muster_core.scheduling.state import Allocations, PoolIndex, Transaction

_US = 1_000_000
_NAMES_KEPT = 10_000
_RUNS_KEPT = 5


class _Run(NamedTuple):
    """A run that ended well at ``finished_at`` after ``taken`` (both µs)."""

    finished_at: int
    job_id: str
    taken: int


class RuntimeEstimates:
    """The last run times of jobs that succeeded, by namespace and name. ``version`` changes whenever something is learned.

    The last are those that finished last, in whatever order they are told, and however often.
    """

    def __init__(self) -> None:
        self.version = 0
        self._taken: dict[tuple[str, str], tuple[_Run, ...]] = {}

    @property
    def names(self) -> Set[tuple[str, str]]:
        """The namespaces and names of which something is known."""
        return self._taken.keys()

    def note(self, record: JobRecord) -> None:
        """Learn from a job that has succeeded; others teach nothing."""
        if record.phase is not Phase.SUCCEEDED or record.job is None or not record.running_at:
            return
        key = (record.job.namespace, record.job.name)
        known = self._taken.pop(key, ())
        run = _Run(record.finished_at, record.job_id, max(record.finished_at - record.running_at, 0))
        self._taken[key] = tuple(sorted({*known, run}))[-_RUNS_KEPT:]
        self.version += self._taken[key] != known
        if len(self._taken) > _NAMES_KEPT:
            del self._taken[next(iter(self._taken))]

    def expected_end(self, record: JobRecord, now: int) -> int | None:
        """The instant (µs, not before ``now``) at which a running job is expected to have ended, or None where nothing tells."""
        if record.job is None:
            return None
        ends: list[int] = []
        deadline = record.job.run.active_deadline_s
        if deadline is not None:
            ends.append((record.active_from or now) + deadline * _US)
        taken = self._taken.get((record.job.namespace, record.job.name))
        if taken:
            longest = max(run.taken for run in taken)
            ends.append((record.running_at if record.phase is Phase.RUNNING else now) + longest)
        return max(min(ends), now) if ends else None

    def is_fixed(self, record: JobRecord) -> bool:
        """Whether the expected end of a running job is an instant that only events can move, until it is past."""
        return bool(record.active_from) and record.phase is Phase.RUNNING


class ExpectedRelease(NamedTuple):
    """Room that a job gives back together: at ``end`` (µs), or nobody knows when."""

    record: JobRecord
    holds: Allocations
    end: int | None


def leaving(index: PoolIndex, now: int) -> list[ExpectedRelease]:
    """What is on its way out already."""
    releases = index.releases
    return [
        ExpectedRelease(index.records[job_id], releases.of(job_id).leaving, now)
        for job_id in releases.leaving
    ]


def earliest_placement(
    transaction: Transaction,
    leavers: Sequence[ExpectedRelease],
    gang: Gang,
    fits: Callable[[], Placement | None],
) -> tuple[int, Placement] | None:
    """The fewest of the first ``leavers`` after whom ``gang`` fits, and where; their room stays released inside the open transaction.

    None where it does not fit after all of them; what was released then is for the caller to roll back.
    """
    found = fits()
    if found is not None:
        return 0, found
    enough = _enough_in_all(transaction, leavers, gang)
    if enough is None:
        return None
    way = _Way(transaction, leavers)
    try:
        low, high, step = 0, enough, 1
        way.go_to(high)
        while (found := fits()) is None:
            if high == len(leavers):
                return None
            low, high, step = high, min(high + step, len(leavers)), step * 2
            way.go_to(high)
        low = max(low, enough - 1)
        while high - low > 1:
            way.back_to(low)
            middle = (low + high) // 2
            way.go_to(middle)
            better = fits()
            if better is None:
                low = middle
            else:
                high, found = middle, better
        way.back_to(high)
        way.go_to(high)
        return high, found
    finally:
        way.settle()


class _Way:
    """How far the leavers have been released, with the way back."""

    def __init__(self, transaction: Transaction, leavers: Sequence[ExpectedRelease]) -> None:
        self._trial = transaction
        self._leavers = leavers
        self._at = 0
        self._marks: list[tuple[int, tuple[int, int]]] = []

    def go_to(self, number: int) -> None:
        if number > self._at:
            self._marks.append((self._at, self._trial.checkpoint()))
            for leaver in self._leavers[self._at : number]:
                self._trial.release(leaver.record, leaver.holds)
            self._at = number

    def back_to(self, number: int) -> None:
        while self._at > number:
            self._at, mark = self._marks.pop()
            self._trial.rollback(mark)
        self.go_to(number)

    def settle(self) -> None:
        while self._marks:
            self._trial.commit(self._marks.pop()[1])


def _enough_in_all(transaction: Transaction, leavers: Sequence[ExpectedRelease], gang: Gang) -> int | None:
    """After how many leavers there is enough of everything in all, wherever it lies; None where there never is. At least 1."""
    free = transaction.snapshot.free_total().amounts()
    missing = {name: amount - free.get(name, 0) for name, amount in gang_amounts(gang).items()}
    missing = {name: amount for name, amount in missing.items() if amount > 0 and name != "gpu_memory"}
    for number, leaver in enumerate(leavers, 1):
        for name, amount in amounts_of(hold for _, hold in leaver.holds).items():
            if name in missing:
                missing[name] -= amount
                if missing[name] <= 0:
                    del missing[name]
        if not missing:
            return number
    return None


class _Gradual(Sequence[ExpectedRelease]):
    """``length`` leavers, each made when it is asked for and then kept."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._made: list[ExpectedRelease] = []

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> ExpectedRelease: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ExpectedRelease]: ...
    def __getitem__(self, at: int | slice) -> ExpectedRelease | Sequence[ExpectedRelease]:
        last = at.indices(self._length)[1] if isinstance(at, slice) else at + 1
        if last > self._length:
            raise IndexError(at)
        while len(self._made) < last:
            self._made.append(self._make())
        return self._made[at]

    @abstractmethod
    def _make(self) -> ExpectedRelease:
        """The one after those that are made."""
        ...


class ReleaseTimeline(_Gradual):
    """Running jobs by their expected end; those of whom nobody knows come last, the oldest of them first.

    Services stay up, and what a finished job has left behind may stay as long as it likes: nobody waits for those. ``until`` is the
    instant (µs) up to which the order and the ends stay as they are without any event, None: for ever.
    """

    def __init__(self, index: PoolIndex, runtime_estimates: RuntimeEstimates, now: int) -> None:
        super().__init__(len(index.releases))
        self._index = index
        self._known: list[tuple[int, str]] = []
        fixed = True
        for job_id in (*index.releases.bounded, *index.releases.called(runtime_estimates.names)):
            record = index.records[job_id]
            end = runtime_estimates.expected_end(record, now)
            if end is not None:
                self._known.append((end, job_id))
                fixed = fixed and runtime_estimates.is_fixed(record)
        heapq.heapify(self._known)
        self._with_end = {job_id for _, job_id in self._known}
        self._without_end = (job_id for _, job_id in index.releases.by_age if job_id not in self._with_end)
        self.until: int | None = None
        if self._known:
            self.until = max(self._known[0][0], now + 1) if fixed else now + 1

    def _make(self) -> ExpectedRelease:
        end = None
        if self._known:
            end, job_id = heapq.heappop(self._known)
        else:
            job_id = next(self._without_end)
        return ExpectedRelease(self._index.records[job_id], self._index.releases.of(job_id).ending, end)


class RemainingReleases(_Gradual):
    """The same leavers with what of their holds is in ``held`` when each is looked up first."""

    def __init__(self, leavers: Sequence[ExpectedRelease], held: Container[AllocationKey]) -> None:
        super().__init__(len(leavers))
        self._leavers = leavers
        self._held = held

    def _make(self) -> ExpectedRelease:
        one = self._leavers[len(self._made)]
        if all(key in self._held for key, _ in one.holds):
            return one
        return one._replace(holds=tuple((key, hold) for key, hold in one.holds if key in self._held))


_AS_OFTEN_AS_IT_FITS = 1 << 30
_NEVER = -_AS_OFTEN_AS_IT_FITS


class EarliestFit(NamedTuple):
    """The gang fits after the first ``number`` leavers, and has room on no other than ``nodes`` then."""

    number: int
    nodes: frozenset[str]


def has_equal_replicas(gang: Gang) -> bool:
    """Whether nothing matters for the gang but how many of its replicas each node holds."""
    return (
        len(gang.roles) == 1
        and not gang.roles[0].overrides
        and gang.roles[0].slot.peer is None
        and not gang.policy.topology
        and gang.policy.strategy is Strategy.PACK
    )


def earliest_fit(gang: Gang, leavers: Sequence[ExpectedRelease], snapshot: Snapshot) -> EarliestFit | None:
    """The fewest of the first ``leavers`` after whom all of a countable ``gang`` fits; None where it does not after all of them."""
    slot = gang.roles[0].slot
    need = snapshot.need(slot.demand)
    if not need.possible:
        return None
    fits = Field(snapshot, (slot,)).fits(slot)
    holding = set(fits.names)
    total = fits.total
    emptying = _Emptying(need, snapshot, snapshot.verdicts(slot.rules).admitted)
    number = 0
    while total < gang.full:
        if number == len(leavers):
            return None
        for name in emptying.after(leavers[number]):
            more = emptying.gain(name, fits.times(name))
            if more:
                total += more
                holding.add(name)
        number += 1
    return EarliestFit(number, frozenset(holding))


class _Emptying:
    """The nodes that leavers have left, of those that are ``admitted``."""

    def __init__(self, need: Need, snapshot: Snapshot, admitted: Container[str]) -> None:
        self._need = need
        self._snapshot = snapshot
        self._admitted = admitted
        self._gpus: dict[str, int] = {}
        self._gone: dict[str, set[AllocationKey]] = {}
        self._times: dict[str, int] = {}

    def after(self, leaver: ExpectedRelease) -> Iterable[str]:
        """The nodes that this one leaves and that may have the GPUs for a replica then."""
        gpus = self._gpus
        left: dict[str, None] = {}
        for key, hold in leaver.holds:
            name = hold.node
            most = gpus.get(name)
            if most is None:
                most = self._most_gpus(name)
            gpus[name] = most = most + len(hold.gpus)
            self._gone.setdefault(name, set()).add(key)
            if most >= self._need.gpus:
                left[name] = None
        return left

    def gain(self, name: str, before: int) -> int:
        """How many more replicas fit on a node than when this was asked last, or than ``before`` where it never was."""
        room = self._snapshot.room_without(name, self._gone[name])
        times = count(room, self._need, _AS_OFTEN_AS_IT_FITS)
        known = self._times.get(name, before)
        self._times[name] = times
        return times - known

    def _most_gpus(self, name: str) -> int:
        """The number of whole GPUs free on a node, or more."""
        if name not in self._admitted or self._snapshot.class_of(name) is None:
            return _NEVER
        # Which GPUs others use depends on all that is held, so that a sum would not tell.
        if self._snapshot.nodes[name].foreign.gpu > 0:
            return self._need.gpus
        return whole_gpus(self._snapshot.room(name))
