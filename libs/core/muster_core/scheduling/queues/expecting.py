"""When a waiting job is expected to start, and from what that is known; or why nobody knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.models import JobKind, JobRecord
from muster_core.scheduling.placement.words import counted, listed
from muster_core.scheduling.queues.durations import Durations
from muster_core.scheduling.queues.index import PoolIndex
from muster_core.scheduling.queues.keeping import Reservation

_US = 1_000_000


class Expecting:
    """What is known of the starts of those who wait for room, at ``now`` (µs), with ``reservations`` by job id."""

    def __init__(
        self, index: PoolIndex, reservations: Mapping[str, Reservation], durations: Durations, now: int
    ) -> None:
        self._index = index
        self._reservations = reservations
        self._durations = durations
        self._now = now

    def known_from(self, record: JobRecord, *, feasible: bool | None, ahead: str) -> str:
        """From what the start of a job is known, or why it is not. ``feasible`` is whether the empty pool could hold it, None where a limit
        keeps it; ``ahead`` is the first of its queue before it."""
        if feasible is None:
            return "not known: it starts when its queue has given back enough"
        if not feasible:
            return "not as the nodes are: the empty pool could not hold it"
        kept = self._reservations.get(record.job_id)
        if kept is None:
            return f"not known: {self._why_unkept(record, ahead)}"
        if kept.expected_at is None:
            return f"not known: {self._why_unknown(kept)}"
        if kept.expected_at <= self._now:
            return "as soon as what is on its way out has gone"
        return self._last_to_end(kept, kept.expected_at)

    def _why_unkept(self, record: JobRecord, ahead: str) -> str:
        queue = self._index.tree.queue_of(record.job) if record.job else None
        patience = self._index.tree.specs[queue].starvation_after_s if queue else 0
        if record.waiting_since + patience * _US > self._now:
            return f"it starts as soon as it fits; from {patience} s of waiting on, room is kept for it"
        if ahead:
            return f"it starts as soon as it fits; room is kept for {ahead} first"
        return "it starts as soon as it fits; no end of what runs is known to make room for it"

    def _why_unknown(self, kept: Reservation) -> str:
        unknown = [record.name for record, end in self._on(kept) if end is None]
        if unknown:
            end = "ends" if len(unknown) == 1 else "end"
            return f"nobody can tell when {listed(unknown)} {end}: no active deadline, no earlier run of that name"
        return "it comes after another whose start is not known"

    def _last_to_end(self, kept: Reservation, at: int) -> str:
        ends = [(end, record) for record, end in self._on(kept) if end is not None and end <= at]
        if not ends:
            return "from the starts of those who come before it"
        end, last = max(ends, key=lambda one: (one[0], one[1].job_id))
        how = "active deadline" if self._is_deadline(last, end) else "earlier runs"
        others = f", after {counted(len(ends) - 1, 'other')} on its nodes" if len(ends) > 1 else ""
        return f"when {last.name} ends, by its {how}{others}"

    def _on(self, kept: Reservation) -> Iterator[tuple[JobRecord, int | None]]:
        """What runs on the nodes of a reservation, and when it is expected to end."""
        nodes = frozenset(kept.nodes)
        for job_id, allocations in sorted(self._index.allocations.items()):
            record = self._index.records[job_id]
            if _ends_some_time(record) and any(hold.node in nodes for hold in allocations.values()):
                yield record, self._durations.expected_end(record, self._now)

    def _is_deadline(self, record: JobRecord, end: int) -> bool:
        deadline = record.job.run.active_deadline_s if record.job else None
        return deadline is not None and (record.active_from or self._now) + deadline * _US <= end


def _ends_some_time(record: JobRecord) -> bool:
    return record.phase in ACTIVE_PHASES and record.job is not None and record.job.kind is not JobKind.SERVICE
