"""Invariants of elastic jobs in the event stream, checked event by event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from muster_bus import Bus
from muster_bus.ordered_consumer import StreamRange, read_range
from muster_core.events import JobEvicted, JobResized, JobRestarting, StoredEvent
from muster_core.lifecycle import apply_event
from muster_core.models import JobRecord, Phase
from muster_events.catalogue import JOBS_STREAM
from muster_events.codec import read_job_event
from muster_events.subjects import JOB_EVENTS

_ACTIVE = (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING)


async def read_history(bus: Bus) -> list[StoredEvent]:
    """Return all events of jobs, in total order."""
    last = await bus.last_sequence(JOBS_STREAM)
    stretch = StreamRange(stream=JOBS_STREAM, filters=[JOB_EVENTS], after=0, through=last)
    return [read_job_event(incoming) async for chunk in read_range(bus, stretch) for incoming in chunk]


class ResizeInvariants:
    """Applies events to job records and checks the result, for a pool with these milli-CPU per node.

    ``resizes`` has the resizes by job id.
    """

    def __init__(self, nodes: Mapping[str, int]) -> None:
        self.records: dict[str, JobRecord] = {}
        self.resizes: dict[str, list[JobResized]] = defaultdict(list)
        self._nodes = nodes

    def apply(self, stored: StoredEvent) -> None:
        """Apply one event.

        Raises:
            AssertionError: a size is out of bounds, another replica changed, or a node is overcommitted.
        """
        before = self.records.get(stored.job_id)
        transition = apply_event(before, stored)
        assert transition.record is not None, transition.invalid
        after = self.records[stored.job_id] = transition.record
        assert not isinstance(stored.event, JobRestarting | JobEvicted), f"{after.name}: {stored.event}"
        if isinstance(stored.event, JobResized):
            assert transition.invalid is None, f"{after.name}: {transition.invalid}"
            self.resizes[stored.job_id].append(stored.event)
        _assert_in_bounds(after)
        if before is not None:
            _assert_survivors_stay(before, after)
        self._assert_capacity()

    def _assert_capacity(self) -> None:
        allocated: Counter[str] = Counter()
        for record in self.records.values():
            for replica in record.replicas:
                role = record.job.role(replica.role) if record.job else None
                if role is not None and not replica.ended:
                    allocated[replica.node] += role.template.requests.cpu
        assert all(amount <= self._nodes[node] for node, amount in allocated.items()), dict(allocated)


def _assert_in_bounds(record: JobRecord) -> None:
    if record.job is None or record.phase not in _ACTIVE:
        return
    sizes = Counter(replica.role for replica in record.gang())
    for role in record.job.roles:
        assert role.min <= sizes[role.name] <= role.max, f"{record.name} has {dict(sizes)}"


def _assert_survivors_stay(before: JobRecord, after: JobRecord) -> None:
    earlier = {replica.key: replica for replica in before.gang()}
    for replica in after.gang():
        was = earlier.get(replica.key)
        if was is not None:
            identity = (replica.attempt, replica.restart, replica.generation, replica.node)
            assert identity == (was.attempt, was.restart, was.generation, was.node), (
                f"{after.name}: {replica}"
            )
