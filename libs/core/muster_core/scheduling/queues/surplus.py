"""What running jobs have above their minimum, replica by replica: what can be taken of them while they go on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster_core.events import ReplicaRef
from muster_core.models import JobRecord
from muster_core.scheduling.placement import Allocation, AllocationKey
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.queues.departures import Allocations
from muster_core.scheduling.queues.resizing import reachable, resizable


def surplus(
    record: JobRecord, held: Mapping[AllocationKey, Allocation]
) -> Iterator[tuple[ReplicaRef, Allocations]]:
    """The members above the job's minimum that may leave one by one, the newest first; ``held`` is what the job holds."""
    if not resizable(record) or record.job is None:
        return
    members = record.members()
    floor = min(record.job.min_available or 0, sum(role.replicas for role in record.job.roles))
    spare = len(members) - floor
    sizes = {role.name: sum(1 for one in members if one.role == role.name) for role in record.job.roles}
    lowest = {name: reachable(record, name, 0) or 0 for name in sizes}
    for one in sorted(members, key=lambda one: (-one.generation, -one.index, one.role)):
        key = (record.job_id, one.attempt, one.role, one.index)
        hold = held.get(key)
        if is_pinned(one.role) or not one.index or hold is None or spare <= 0:
            continue
        if sizes[one.role] > lowest[one.role]:
            sizes[one.role] -= 1
            spare -= 1
            yield ReplicaRef(role=one.role, index=one.index), ((key, hold),)
