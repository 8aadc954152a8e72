"""What the stream says of elastic jobs, event by event: what must hold of every membership, and how often one changed."""

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
    """Everything that has happened to jobs, in total order."""
    last = await bus.last_sequence(JOBS_STREAM)
    stretch = StreamRange(stream=JOBS_STREAM, filters=[JOB_EVENTS], after=0, through=last)
    return [read_job_event(incoming) async for chunk in read_range(bus, stretch) for incoming in chunk]


class ElasticHistory:
    """Folds the events of a pool whose nodes have so many milli-CPU, and checks each that it takes in.

    ``resizes`` has every change of size by job id.
    """

    def __init__(self, nodes: Mapping[str, int]) -> None:
        self.records: dict[str, JobRecord] = {}
        self.resizes: dict[str, list[JobResized]] = defaultdict(list)
        self._nodes = nodes

    def take(self, stored: StoredEvent) -> None:
        """Fold one event.

        Raises:
            AssertionError: a size is out of bounds, a survivor is not who it was, or a node holds more than it has.
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
        self._assert_room()

    def _assert_room(self) -> None:
        held: Counter[str] = Counter()
        for record in self.records.values():
            for replica in record.replicas:
                role = record.job.role(replica.role) if record.job else None
                if role is not None and not replica.ended:
                    held[replica.node] += role.template.requests.cpu
        assert all(amount <= self._nodes[node] for node, amount in held.items()), dict(held)


def _assert_in_bounds(record: JobRecord) -> None:
    if record.job is None or record.phase not in _ACTIVE:
        return
    sizes = Counter(member.role for member in record.gang())
    for role in record.job.roles:
        assert role.min <= sizes[role.name] <= role.max, f"{record.name} has {dict(sizes)}"


def _assert_survivors_stay(before: JobRecord, after: JobRecord) -> None:
    stood = {member.key: member for member in before.gang()}
    for member in after.gang():
        was = stood.get(member.key)
        if was is not None:
            identity = (member.attempt, member.restart, member.generation, member.node)
            assert identity == (was.attempt, was.restart, was.generation, was.node), f"{after.name}: {member}"
