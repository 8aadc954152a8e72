"""The reasons that a queue gives, apart from a shortfall of room."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_core.events import Assignment
from muster_core.lifecycle.builds import BUILD_FAILED, WAITING_FOR_BUILD
from muster_core.lifecycle.starting import START_TIMEOUT
from muster_core.models import JobRecord, Phase, Reason, ReplicaRecord, ReplicaState, replica_name
from muster_core.scheduling.placement import Placement, Snapshot
from muster_core.scheduling.placement.words import amount_in_words, counted, demand_in_words

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

_NAMED = 4


class EndedBuild(msgspec.Struct, frozen=True, kw_only=True):
    """How a build ended: its ``name``, and the words of its last reason."""

    name: str
    phase: Phase
    message: str = ""


def name_in_use(record: JobRecord, holder: str) -> Reason:
    """Another job has the same name, hence the same replica names."""
    message = f"job {holder} has the name {record.name} and has not ended yet"
    return Reason(code=NAME_IN_USE, message=message)


def no_such_queue(queue: str) -> Reason:
    """The job names a queue that is not there."""
    return Reason(code=NO_SUCH_QUEUE, message=f"there is no queue {queue}: it starts when there is")


def queue_limit(queue: str, resource: str, *, limit: int, held: int, needed: int) -> Reason:
    """The queue, or one above the job's, may not hold as much as the gang's floor needs beside what it holds already."""
    message = (
        f"queue {queue} may hold {demand_in_words(resource, limit)}: "
        f"{amount_in_words(resource, held)} held, {amount_in_words(resource, needed)} more needed"
    )
    if needed > limit:
        message += "; that is above the limit by itself"
    numbers = {f"limit.{resource}": limit, f"held.{resource}": held, f"needed.{resource}": needed}
    return Reason(code=QUEUE_LIMIT, message=message, numbers=numbers)


def behind_first(queue: str, first: JobRecord) -> Reason:
    """The queue is strict, and its first job does not fit."""
    return Reason(code=BEHIND_FIRST, message=f"queue {queue} is strict: nobody passes {first.name}")


def behind_reservation(name: str, nodes: Sequence[str]) -> Reason:
    """There would be room, but it is kept for another job, ``name``."""
    where = nodes[0] if len(nodes) == 1 else counted(len(nodes), "node")
    message = f"there would be room, but it is kept for {name} on {where}"
    return Reason(code=BEHIND_RESERVATION, message=message, numbers={"reserved_nodes": len(nodes)})


def waiting_for_build(build: JobRecord) -> Reason:
    """The job's build has not ended yet."""
    return Reason(code=WAITING_FOR_BUILD, message=f"waits for its build {_called(build)}")


def build_in_hand(build: JobRecord) -> Reason:
    """The same, and where the build stands now."""
    why = f": {build.reason.message}" if build.reason and build.reason.message else ""
    message = f"waits for its build {_called(build)}, which is {build.phase}{why}"
    return Reason(code=WAITING_FOR_BUILD, message=message)


def build_failed(build: str, end: EndedBuild | None) -> Reason:
    """The job's build ended otherwise than well; without an ``end`` it is not there any more."""
    if end is None:
        message = f"its build {build} was deleted before it had succeeded"
    else:
        why = f": {end.message}" if end.message else ""
        message = f"its build {end.name} ({build}) ended {end.phase}{why}"
    return Reason(code=BUILD_FAILED, message=message)


def _called(build: JobRecord) -> str:
    return f"{build.name} ({build.job_id})" if build.name else build.job_id


def taken(record: JobRecord, members: Sequence[ReplicaRecord], snapshot: Snapshot) -> Reason:
    """Nodes refused replicas that had been placed on them, gave them up (a drain, an eviction), or went away with them."""
    first = members[0]
    name = replica_name(record.name, first.role, first.index)
    why = f": {first.reason}" if first.reason else ""
    more = f", and {counted(len(members) - 1, 'other replica')} as well" if len(members) > 1 else ""
    if _went_away(first, snapshot):
        code, what = NODE_LOST, f"{name} went with node {first.node}"
    elif first.running_at:
        code, what = DISRUPTED, f"{name} was taken from node {first.node}"
    else:
        code, what = REJECTED_BY_NODE, f"node {first.node} rejected {name}"
    return Reason(code=code, message=f"{what}{why}{more}", numbers={"rejected": len(members)})


def replaced(
    record: JobRecord, members: Sequence[ReplicaRecord], added: Sequence[Assignment], snapshot: Snapshot
) -> Reason:
    """The same, where the job goes on and starts them again one by one, those that find room."""
    because = taken(record, members, snapshot)
    nodes = sorted({one.node for one in added})
    where = f"started again on {nodes[0] if len(nodes) == 1 else counted(len(nodes), 'node')}"
    left = len(members) - len(added)
    outcome = (
        where if not left else f"{len(added)} {where}, no room for {left}" if added else "no room for it"
    )
    numbers = {**because.numbers, "restarted": len(added)}
    return Reason(code=because.code, message=f"{because.message}; {outcome}", numbers=numbers)


def start_timeout(record: JobRecord, late: Sequence[ReplicaRecord], timeout_s: int) -> Reason:
    """The gang was placed, and some of it had not started in time: which replicas, where, and what the runtime said of them."""
    named = [f"{replica_name(record.name, one.role, one.index)} on {one.node}" for one in late[:_NAMED]]
    more = f" and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
    said = next((one.reason for one in late if one.reason), "")
    launched = any(one.state is ReplicaState.LAUNCHED for one in late)
    why = said or ("launched, and nothing heard of since" if launched else "not taken up by any launcher")
    return Reason(
        code=START_TIMEOUT,
        message=f"{', '.join(named)}{more} did not start within {timeout_s} s: {why}",
        numbers={"unstarted": len(late), "replicas": len(record.members()), "timeout_s": timeout_s},
    )


def taken_back(record: JobRecord, late: Sequence[ReplicaRecord], timeout_s: int) -> Reason:
    """The job grew, and those who joined had not started in time: the same, and what it goes on with."""
    because = start_timeout(record, late, timeout_s)
    left = len(record.members()) - len(late)
    message = f"{because.message}; taken back, goes on with {counted(left, 'replica')}"
    return msgspec.structs.replace(because, message=message)


def _went_away(member: ReplicaRecord, snapshot: Snapshot) -> bool:
    node = snapshot.nodes.get(member.node)
    return member.node_lost or node is None or not node.ready


def placed(placement: Placement) -> Reason:
    """The gang found room; says so where it is less than what was asked for."""
    number = len(placement.replicas)
    of = "" if number == placement.full else f" of {placement.full}"
    noun = "replica" if (placement.full if of else number) == 1 else "replicas"
    return Reason(
        code=PLACED,
        message=f"{number}{of} {noun} on {counted(placement.nodes, 'node')}",
        numbers={"replicas": number, "asked": placement.full, "nodes": placement.nodes},
    )


def same(left: Reason | None, right: Reason) -> bool:
    """Whether both say the same to a program: code and numbers, not words."""
    return left is not None and left.code == right.code and left.numbers == right.numbers
