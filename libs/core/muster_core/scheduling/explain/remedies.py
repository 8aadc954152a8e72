"""Remedies: changes to a job, a queue or the pool that let a waiting job start, as data and in words."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from muster_core.lifecycle import BUILD_FAILED
from muster_core.models import Reason
from muster_core.quantities import counted, format_demand, listed
from muster_core.scheduling import reasons

_MINUTE_S = 60
_JOBS_NAMED = 3


class RemedyKind(StrEnum):
    """What to change. Each value names the fields of ``Remedy`` that it uses."""

    FEWER_REPLICAS = "FewerReplicas"
    """Lower the minimum of the roles in ``replicas``."""
    FREE_CAPACITY = "FreeCapacity"
    """Free ``amounts``, on ``node`` if it is set."""
    MORE_CAPACITY = "MoreCapacity"
    """Add ``amounts`` to ``node``."""
    ADD_NODES = "AddNodes"
    """Add nodes to the pool."""
    ADD_MATCHING_NODES = "AddMatchingNodes"
    """Add nodes that satisfy the constraints of the job."""
    UNCORDON_NODE = "UncordonNode"
    """Uncordon ``node``."""
    REPAIR_NODE = "RepairNode"
    """Make ``node`` ready."""
    SHRINK_OTHERS = "ShrinkOthers"
    """Shrink the running jobs in ``replicas``."""
    DROP_CONSTRAINT = "DropConstraint"
    """Drop ``constraint``, which asks for ``values``."""
    CHANGE_CONSTRAINTS = "ChangeConstraints"
    """Change the node selector, the affinity or the tolerations of the job."""
    SET_ACTIVE_DEADLINE = "SetActiveDeadline"
    """Set an active deadline of at most ``seconds``, so that the job ends before a reservation starts."""
    RAISE_LIMIT = "RaiseLimit"
    """Raise the limit of ``queue`` to ``amounts``."""
    CREATE_QUEUE = "CreateQueue"
    """Apply ``queue``."""
    USE_ANOTHER_QUEUE = "UseAnotherQueue"
    """Submit the job to another queue."""
    CHANGE_QUEUE_POLICY = "ChangeQueuePolicy"
    """Change the policy of ``queue`` to ``fifo_skip``."""
    RAISE_PRIORITY = "RaisePriority"
    """Give the job a higher priority."""
    RENAME = "Rename"
    """Give the job another name."""
    CANCEL_NAME_HOLDER = "CancelNameHolder"
    """Cancel the job that uses the name."""
    FIX_BUILD = "FixBuild"
    """Correct the build and submit the build and the job again."""
    RESUME = "Resume"
    """Resume the suspended job."""


class SizeChange(msgspec.Struct, frozen=True, kw_only=True):
    """``role`` of the running job ``job`` (empty: of the waiting job itself) has ``after`` instead of ``before`` replicas."""

    job: str = ""
    role: str
    before: int
    after: int


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """A change that helps a waiting job to start."""

    kind: RemedyKind
    #: A what-if run on the current pool confirmed that the job starts with this change alone.
    verified: bool = False
    #: Another waiting job may take the capacity first.
    contested: bool = False
    queue: str = ""
    node: str = ""
    #: By resource, in milli-CPU, milli-GPU, bytes or units.
    amounts: dict[str, int] = {}
    replicas: tuple[SizeChange, ...] = ()
    #: A constraint of placement, such as ``NodeSelector``.
    constraint: str = ""
    #: What the constraint names: taints, labels or a topology key.
    values: tuple[str, ...] = ()
    seconds: int = 0


def remedy_text(remedy: Remedy) -> str:
    """Describe a remedy in words, for terminals: ``would start now with 8 workers instead of 9``."""
    if not remedy.verified:
        return _instruction(remedy)
    unless = ", unless another waiting job takes it first" if remedy.contested else ""
    return f"would start now {_condition(remedy)}{unless}"


def remedies_for(reason: Reason, queue: str) -> tuple[Remedy, ...]:
    """Return the remedies for a ``reason`` other than missing capacity, the nearest first; empty if only time helps.

    ``queue`` is the queue of the job, or the one that it names if that is unknown.
    """
    return tuple(
        Remedy(kind=kind, queue=queue if kind in _OF_QUEUE else "") for kind in _REMEDIES.get(reason.code, ())
    )


_REMEDIES = {
    reasons.NO_SUCH_QUEUE: (RemedyKind.CREATE_QUEUE, RemedyKind.USE_ANOTHER_QUEUE),
    reasons.NAME_IN_USE: (RemedyKind.RENAME, RemedyKind.CANCEL_NAME_HOLDER),
    reasons.BEHIND_FIRST: (RemedyKind.RAISE_PRIORITY, RemedyKind.CHANGE_QUEUE_POLICY),
    BUILD_FAILED: (RemedyKind.FIX_BUILD,),
}
_OF_QUEUE = (RemedyKind.CREATE_QUEUE, RemedyKind.CHANGE_QUEUE_POLICY)


def _instruction(remedy: Remedy) -> str:
    """Describe a remedy that no what-if run confirmed, in the imperative."""
    return _INSTRUCTIONS[remedy.kind].format(queue=remedy.queue, amounts=listed(_amounts(remedy)))


_INSTRUCTIONS = {
    RemedyKind.FREE_CAPACITY: "free {amounts}",
    RemedyKind.RAISE_LIMIT: "raise the limit of queue {queue} to {amounts}; the pool lacks free capacity as well",
    RemedyKind.CREATE_QUEUE: "apply queue {queue}",
    RemedyKind.CHANGE_QUEUE_POLICY: "change the policy of queue {queue} to fifo_skip",
    RemedyKind.ADD_NODES: "add nodes",
    RemedyKind.ADD_MATCHING_NODES: "add nodes that match",
    RemedyKind.CHANGE_CONSTRAINTS: "change its node selector, affinity or tolerations",
    RemedyKind.USE_ANOTHER_QUEUE: "submit it to another queue",
    RemedyKind.RAISE_PRIORITY: "give it a higher priority",
    RemedyKind.RENAME: "give it another name",
    RemedyKind.CANCEL_NAME_HOLDER: "cancel the job that has the name",
    RemedyKind.FIX_BUILD: "correct the build and submit both again",
    RemedyKind.RESUME: "resume it",
}


def _condition(remedy: Remedy) -> str:
    """Describe a confirmed remedy as the condition under which the job starts."""
    match remedy.kind:
        case RemedyKind.FEWER_REPLICAS:
            return f"with {listed(f'{counted(one.after, one.role)} instead of {one.before}' for one in remedy.replicas)}"
        case RemedyKind.FREE_CAPACITY:
            return f"with {_more(remedy)} free on {remedy.node}"
        case RemedyKind.MORE_CAPACITY:
            return f"with {_more(remedy)} on {remedy.node}"
        case RemedyKind.UNCORDON_NODE:
            return f"if {remedy.node} were uncordoned"
        case RemedyKind.REPAIR_NODE:
            return f"if {remedy.node} were ready"
        case RemedyKind.SHRINK_OTHERS:
            return f"if {_shrunk_jobs(remedy.replicas)}"
        case RemedyKind.RAISE_LIMIT:
            return f"with the limit of queue {remedy.queue} raised to {listed(_amounts(remedy))}"
        case RemedyKind.SET_ACTIVE_DEADLINE:
            return f"with an active deadline of at most {_span(remedy.seconds)}"
        case _:
            text = _WITHOUT_CONSTRAINT.get(remedy.constraint, "without its rules about other pods")
            return text.format(values=listed(remedy.values))


_WITHOUT_CONSTRAINT = {
    "Taint": "if it tolerated {values}",
    "NodeSelector": "without its node selector {values}",
    "NodeAffinity": "without its required node affinity",
    "Topology": "if one domain of {values} were preferred and not required",
}


def _amounts(remedy: Remedy) -> Iterator[str]:
    return (format_demand(name, amount) for name, amount in remedy.amounts.items())


def _more(remedy: Remedy) -> str:
    return " and ".join(text.replace(" ", " more ", 1) for text in _amounts(remedy))


def _shrunk_jobs(changes: tuple[SizeChange, ...]) -> str:
    by_job: dict[str, list[SizeChange]] = {}
    for change in changes:
        by_job.setdefault(change.job, []).append(change)
    if len(by_job) > _JOBS_NAMED:
        removed = sum(change.before - change.after for change in changes)
        return f"{counted(len(by_job), 'job')} gave up {counted(removed, 'replica')} above their minimum"
    return listed(
        f"{job} shrank by {listed(counted(change.before - change.after, change.role) for change in roles)}"
        for job, roles in by_job.items()
    )


def _span(seconds: int) -> str:
    return f"{seconds // _MINUTE_S} min" if seconds >= 2 * _MINUTE_S else f"{seconds} s"
