"""The reasons that a queue gives, apart from a shortfall of room."""

from __future__ import annotations

from muster_core.models import JobRecord, Reason, ReplicaState, replica_name
from muster_core.placement import Placement
from muster_core.placement.words import counted

SUSPENDED = "Suspended"
NAME_IN_USE = "NameInUse"
REJECTED_BY_NODE = "RejectedByNode"
PLACED = "Placed"


def suspended() -> Reason:
    """The job waits to be resumed."""
    return Reason(code=SUSPENDED, message="the job is suspended: resume it to let it start")


def name_in_use(record: JobRecord, holder: str) -> Reason:
    """Another job has the same name, hence the same replica names."""
    message = f"job {holder} has the name {record.name} and has not ended yet"
    return Reason(code=NAME_IN_USE, message=message)


def rejected_by_node(record: JobRecord) -> Reason:
    """Nodes refused replicas that had been placed on them."""
    rejected = [member for member in record.members() if member.state is ReplicaState.REJECTED]
    first = rejected[0]
    name = replica_name(record.name, first.role, first.index)
    why = f": {first.reason}" if first.reason else ""
    more = f", and {counted(len(rejected) - 1, 'other replica')} as well" if len(rejected) > 1 else ""
    return Reason(
        code=REJECTED_BY_NODE,
        message=f"node {first.node} rejected {name}{why}{more}",
        numbers={"rejected": len(rejected)},
    )


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
