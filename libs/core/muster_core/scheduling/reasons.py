"""Reasons: why a job waits, is placed or loses replicas, as a code, a message and numbers.

Reasons of missing capacity are built by ``placement``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_core.events import Assignment
from muster_core.lifecycle import BUILD_FAILED, START_TIMEOUT, WAITING_FOR_BUILD
from muster_core.models import JobRecord, Phase, Reason, ReplicaRecord, ReplicaState, replica_name
from muster_core.quantities import counted, format_amount, format_demand
from muster_core.scheduling.placement import INSUFFICIENT_RESOURCES, NO_MATCHING_NODE, Placement, Snapshot

NAME_IN_USE = "NameInUse"
REJECTED_BY_NODE = "RejectedByNode"
DISRUPTED = "Disrupted"
NODE_LOST = "NodeLost"
PLACED = "Placed"
NO_SUCH_QUEUE = "NoSuchQueue"
QUEUE_LIMIT = "QueueLimit"
BEHIND_RESERVATION = "BehindReservation"
BEHIND_FIRST = "BehindFirst"
PREEMPTED = "Preempted"
RECLAIMED = "Reclaimed"
GROWN = "Grown"
SHRUNK = "Shrunk"

WAIT_CODES = (
    INSUFFICIENT_RESOURCES,
    NO_MATCHING_NODE,
    NAME_IN_USE,
    NO_SUCH_QUEUE,
    QUEUE_LIMIT,
    BEHIND_RESERVATION,
    BEHIND_FIRST,
    WAITING_FOR_BUILD,
    BUILD_FAILED,
)
"""Why a job waits."""
EVICTION_CODES = (REJECTED_BY_NODE, DISRUPTED, NODE_LOST, PREEMPTED, RECLAIMED, START_TIMEOUT)
"""Why a gang is evicted."""
RESIZE_CODES = (
    GROWN,
    SHRUNK,
    REJECTED_BY_NODE,
    DISRUPTED,
    NODE_LOST,
    PREEMPTED,
    RECLAIMED,
    START_TIMEOUT,
)
"""Why a gang is resized, unless it is proposed."""

_REPLICAS_NAMED = 4


class EndedBuild(msgspec.Struct, frozen=True, kw_only=True):
    """How a build ended; ``message`` is that of its last reason."""

    name: str
    phase: Phase
    message: str = ""


def same(left: Reason | None, right: Reason) -> bool:
    """Return whether two reasons have the same code and numbers; messages may differ."""
    return left is not None and left.code == right.code and left.numbers == right.numbers


def name_in_use(record: JobRecord, holder: str) -> Reason:
    """Another job has the same name, hence the same names of replicas."""
    message = f"the name {record.name} is in use by job {holder}, which has not ended"
    return Reason(code=NAME_IN_USE, message=message)


def no_such_queue(queue: str) -> Reason:
    """The queue that the job names is unknown."""
    return Reason(
        code=NO_SUCH_QUEUE, message=f"queue {queue} does not exist; the job starts once it is applied"
    )


def queue_limit(queue: str, resource: str, *, limit: int, used: int, needed: int) -> Reason:
    """The minimum of the gang would exceed the limit of its queue, or of one above."""
    message = (
        f"queue {queue} is limited to {format_demand(resource, limit)}: "
        f"{format_amount(resource, used)} in use, {format_amount(resource, needed)} more needed"
    )
    if needed > limit:
        message += "; the job alone exceeds the limit"
    numbers = {f"limit.{resource}": limit, f"used.{resource}": used, f"needed.{resource}": needed}
    return Reason(code=QUEUE_LIMIT, message=message, numbers=numbers)


def behind_first(queue: str, first: JobRecord) -> Reason:
    """The queue is strict, and its first job does not fit."""
    return Reason(
        code=BEHIND_FIRST,
        message=f"queue {queue} is strict_fifo: its first job {first.name} does not fit yet",
    )


def behind_reservation(name: str, nodes: Sequence[str]) -> Reason:
    """The job would fit in capacity that is reserved for job ``name``."""
    where = nodes[0] if len(nodes) == 1 else counted(len(nodes), "node")
    message = f"the job would fit, but the capacity is reserved for {name} on {where}"
    return Reason(code=BEHIND_RESERVATION, message=message, numbers={"reserved_nodes": len(nodes)})


def waiting_for_build(build: JobRecord, *, phase: bool = False) -> Reason:
    """The build of the job has not ended; with ``phase`` the message has the phase of the build and its reason."""
    message = f"waits for its build {f'{build.name} ({build.job_id})' if build.name else build.job_id}"
    if phase:
        why = f": {build.reason.message}" if build.reason and build.reason.message else ""
        message += f", which is {build.phase}{why}"
    return Reason(code=WAITING_FOR_BUILD, message=message)


def build_failed(build: str, end: EndedBuild | None) -> Reason:
    """The build of the job did not succeed; ``end`` is None if it no longer exists."""
    if end is None:
        message = f"its build {build} was deleted before it succeeded"
    else:
        message = (
            f"its build {end.name} ({build}) ended as {end.phase}{f': {end.message}' if end.message else ''}"
        )
    return Reason(code=BUILD_FAILED, message=message)


def replicas_lost(record: JobRecord, lost: Sequence[ReplicaRecord], snapshot: Snapshot) -> Reason:
    """Nodes rejected placed replicas, stopped them (a drain, an eviction), or were lost with them."""
    first = lost[0]
    name = replica_name(record.name, first.role, first.index)
    node = snapshot.nodes.get(first.node)
    if first.node_lost or node is None or not node.ready:
        code, what = NODE_LOST, f"{name} was lost with node {first.node}"
    elif first.running_at:
        code, what = DISRUPTED, f"{name} was stopped by node {first.node}"
    else:
        code, what = REJECTED_BY_NODE, f"node {first.node} rejected {name}"
    why = f": {first.reason}" if first.reason else ""
    more = f" (and {counted(len(lost) - 1, 'other replica')})" if len(lost) > 1 else ""
    return Reason(code=code, message=f"{what}{why}{more}", numbers={"rejected": len(lost)})


def replicas_replaced(
    record: JobRecord, lost: Sequence[ReplicaRecord], added: Sequence[Assignment], snapshot: Snapshot
) -> Reason:
    """Nodes lost replicas, and the job continues: those that fit start again."""
    cause = replicas_lost(record, lost, snapshot)
    nodes = sorted({one.node for one in added})
    restarted = f"restarted on {nodes[0] if len(nodes) == 1 else counted(len(nodes), 'node')}"
    missing = len(lost) - len(added)
    if not missing:
        result = restarted
    elif added:
        result = f"{len(added)} {restarted}, no capacity for {missing}"
    else:
        result = "no capacity to restart"
    numbers = {**cause.numbers, "restarted": len(added)}
    return Reason(code=cause.code, message=f"{cause.message}; {result}", numbers=numbers)


def start_timeout(record: JobRecord, late: Sequence[ReplicaRecord], timeout_s: int) -> Reason:
    """Replicas of a placed gang did not start in time: which, on which nodes, and the last reason of the runtime."""
    named = [
        f"{replica_name(record.name, one.role, one.index)} on {one.node}" for one in late[:_REPLICAS_NAMED]
    ]
    more = f" and {len(late) - _REPLICAS_NAMED} more" if len(late) > _REPLICAS_NAMED else ""
    launched = any(one.state is ReplicaState.LAUNCHED for one in late)
    why = next((one.reason for one in late if one.reason), "") or (
        "launched, but no status since" if launched else "no pod-launcher launched them"
    )
    return Reason(
        code=START_TIMEOUT,
        message=f"{', '.join(named)}{more} did not start within {timeout_s} s: {why}",
        numbers={"unstarted": len(late), "replicas": len(record.gang()), "timeout_s": timeout_s},
    )


def growth_timeout(record: JobRecord, late: Sequence[ReplicaRecord], timeout_s: int) -> Reason:
    """Added replicas of a running job did not start in time and are removed."""
    cause = start_timeout(record, late, timeout_s)
    left = len(record.gang()) - len(late)
    message = f"{cause.message}; removed, the job continues with {counted(left, 'replica')}"
    return msgspec.structs.replace(cause, message=message)


def placed(placement: Placement) -> Reason:
    """The gang is placed, with fewer replicas than requested if the message has ``of``."""
    number = len(placement.replicas)
    of = "" if number == placement.full else f" of {placement.full}"
    noun = "replica" if (placement.full if of else number) == 1 else "replicas"
    return Reason(
        code=PLACED,
        message=f"{number}{of} {noun} on {counted(placement.nodes, 'node')}",
        numbers={"replicas": number, "asked": placement.full, "nodes": placement.nodes},
    )
