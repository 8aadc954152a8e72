"""Invariants of elastic jobs in the event stream, checked event by event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from muster_bus import Bus
from muster_bus.ordered_consumer import StreamRange, read_range
from muster_core.events import JobEvicted, JobFinished, JobResized, JobRestarting, StoredEvent
from muster_core.lifecycle import apply_event
from muster_core.models import JobRecord, Phase
from muster_events.catalogue import JOBS_STREAM, SCHEDULER
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

    ``resizes`` has the resizes by job id, with those that crossed the job's end and changed nothing.
    """

    def __init__(self, nodes: Mapping[str, int]) -> None:
        self.records: dict[str, JobRecord] = {}
        self.resizes: dict[str, list[JobResized]] = defaultdict(list)
        self._nodes = nodes
        self._ended_at: dict[str, int] = {}
        self._decided_at: list[int] = []

    def apply(self, stored: StoredEvent) -> None:
        """Apply one event.

        Raises:
            AssertionError: a size is out of bounds, another replica changed, a node is overcommitted, or the scheduler
                resized a job whose end it had read.
        """
        before = self.records.get(stored.job_id)
        transition = apply_event(before, stored)
        assert transition.record is not None, transition.invalid
        after = self.records[stored.job_id] = transition.record
        assert not isinstance(stored.event, JobRestarting | JobEvicted), f"{after.name}: {stored.event}"
        if stored.source == SCHEDULER:
            self._decided_at.append(stored.sequence)
        if isinstance(stored.event, JobFinished) and transition.invalid is None:
            self._ended_at[stored.job_id] = stored.sequence
        if isinstance(stored.event, JobResized):
            if transition.invalid is not None:
                self._assert_crossed(stored, transition.invalid, before, after)
            self.resizes[stored.job_id].append(stored.event)
        _assert_in_bounds(after)
        if before is not None:
            _assert_survivors_stay(before, after)
        self._assert_capacity()

    def _assert_crossed(
        self, resized: StoredEvent, invalid: str, before: JobRecord | None, after: JobRecord
    ) -> None:
        """Check that the scheduler could not know the job's end, and that the resize changed nothing.

        The scheduler reads the stream up to its last commit before it decides again. So between an end that it had not
        read and the resize lie no decisions of it but those of the same commit, whose sequences are consecutive.
        """
        ended_at = self._ended_at.get(resized.job_id)
        assert ended_at is not None, f"{after.name}: {invalid}"
        since = [sequence for sequence in self._decided_at if sequence > ended_at]
        assert since == list(range(since[0], resized.sequence + 1)), (
            f"{after.name}: {invalid}, ended at {ended_at}"
        )
        assert before is not None
        assert (before.replicas, before.generation) == (after.replicas, after.generation)

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
