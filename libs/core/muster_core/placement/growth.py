"""Where more replicas of a running job go: beside its parameter servers, else beside its other members, else on as few nodes as possible.

Growth is not all or nothing: as many start as fit, lowest free index first.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster_core.facts import Assignment
from muster_core.models import Job, ReplicaRecord, Role
from muster_core.placement.admission import rules_of
from muster_core.placement.capacity import Hold, Snapshot
from muster_core.placement.demand import demand_of
from muster_core.placement.field import Field
from muster_core.placement.roles import is_anchor
from muster_core.placement.room import choose_gpus, count


def place_more(
    job: Job, members: Iterable[ReplicaRecord], role: str, target: int, snapshot: Snapshot
) -> tuple[Assignment, ...]:
    """Room for ``role`` to grow to ``target`` members, as far as it goes; ``snapshot`` is not changed.

    ``members`` are all replicas of the job that are known: an index is free when no replica of that index belongs to the membership or
    still waits for its end. Indices stay below the role's maximum.
    """
    known = tuple(members)
    grown = job.role(role)
    if grown is None:
        return ()
    size = sum(1 for one in known if one.role == role and not one.leaving)
    taken = {one.index for one in known if one.role == role and not (one.leaving and one.ended)}
    indices = [index for index in range(grown.max) if index not in taken][
        : max(min(target, grown.max) - size, 0)
    ]
    added: list[Assignment] = []
    mark = snapshot.checkpoint()
    for index in indices:
        assignment = _one_more(grown, index, _nearness(known, added), snapshot)
        if assignment is None:
            break
        demand = demand_of(grown.template_of(index).requests)
        snapshot.hold(("", len(added), role, index), Hold(assignment.node, demand, assignment.gpus))
        added.append(assignment)
    snapshot.rollback(mark)
    return tuple(added)


def _nearness(members: Iterable[ReplicaRecord], added: Iterable[Assignment]) -> dict[str, int]:
    """Nodes to prefer, nearest first: 0 beside an anchor, 1 beside another member, 2 beside one that was just added."""
    nearness = {one.node: 2 for one in added}
    alive = [one for one in members if not one.ended]
    nearness |= {one.node: 1 for one in alive}
    return nearness | {one.node: 0 for one in alive if is_anchor(one.role)}


def _one_more(role: Role, index: int, nearness: dict[str, int], snapshot: Snapshot) -> Assignment | None:
    template = role.template_of(index)
    rules = rules_of(template)
    need = snapshot.need(demand_of(template.requests))
    admitted = snapshot.verdicts(rules).admitted
    near = [
        (rank, name)
        for name, rank in nearness.items()
        if name in admitted and count(snapshot.room(name), need, 1)
    ]
    if near:
        _, node = min(near)
    else:
        far = [
            (-count(spot.room, need, role.max), spot.slack, spot.names[0])
            for spot in Field(snapshot, [rules]).spots
            if count(spot.room, need, 1)
        ]
        if not far:
            return None
        _, _, node = min(far)
    return Assignment(role=role.name, index=index, node=node, gpus=choose_gpus(snapshot.room(node), need))
