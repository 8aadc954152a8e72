"""The ``dragon`` policy: what stays idle for a while goes to the jobs that can use it, the oldest first.

Growth waits until the pool has been quiet and nobody waits whom the pool could hold: a job that grows too early takes the room of the next
one that arrives.
"""

from __future__ import annotations

import msgspec

from muster_core.elasticity.proposal import ScaleProposal
from muster_core.elasticity.view import PoolView, growing_role
from muster_core.models import JobRecord, Reason, Role
from muster_core.placement import Hold, Snapshot, demand_of, place_more
from muster_core.placement.admission import rules_of
from muster_core.placement.words import counted, demand_in_words
from muster_core.queues.resizing import size_of

NAME = "dragon"

_US = 1_000_000


class DragonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``quiet_s``: for how long nothing must have been placed or resized before jobs grow."""

    quiet_s: int = 60


def plan(view: PoolView, now: int, settings: DragonSettings) -> list[ScaleProposal]:
    """Every job that can grow into what is idle, to the size that really fits now; ``now`` in µs."""
    if view.waiting_feasible or now < _quiet_from(view, settings):
        return []
    proposals: list[ScaleProposal] = []
    mark = view.snapshot.checkpoint()
    try:
        for record in view.jobs:
            role = growing_role(record)
            if role is not None and _may_grow(record, now):
                proposal = _grown(record, role, view.snapshot, settings)
                proposals.extend([proposal] if proposal else [])
    finally:
        view.snapshot.rollback(mark)
    return proposals


def next_check(view: PoolView, now: int, settings: DragonSettings) -> int | None:
    """The next instant (µs) at which ``plan`` may propose what it does not propose at ``now``, or None where only facts change that."""
    if view.waiting_feasible:
        return None
    quiet_from = _quiet_from(view, settings)
    cooled = [_cool_from(record) for record in view.jobs if _follows(record)]
    instants = [max(quiet_from, instant) for instant in cooled]
    return min((instant for instant in instants if instant > now), default=None)


def _quiet_from(view: PoolView, settings: DragonSettings) -> int:
    return view.decided_at + settings.quiet_s * _US if view.decided_at else 0


def _follows(record: JobRecord) -> bool:
    return record.job is not None and record.job.elastic.policy in ("", NAME)


def _cool_from(record: JobRecord) -> int:
    cool_down = record.job.elastic.cool_down_s if record.job else 0
    return record.resized_at + cool_down * _US if record.resized_at else 0


def _may_grow(record: JobRecord, now: int) -> bool:
    return _follows(record) and _cool_from(record) <= now


def _grown(
    record: JobRecord, role: Role, snapshot: Snapshot, settings: DragonSettings
) -> ScaleProposal | None:
    if record.job is None:
        return None
    size = size_of(record, role.name)
    wanted = min(role.max, size + (record.job.elastic.step or role.max))
    added = place_more(record.job, record.replicas, role.name, wanted, snapshot)
    if not added:
        return None
    reason = _reason(role, size, size + len(added), snapshot, settings)
    for one in added:
        demand = demand_of(role.template_of(one.index).requests)
        key = (record.job_id, record.attempt, one.role, one.index)
        snapshot.hold(key, Hold(one.node, demand, one.gpus))
    return ScaleProposal(
        job_id=record.job_id,
        role=role.name,
        size=size,
        target=size + len(added),
        policy=NAME,
        attempt=record.attempt,
        generation=record.generation,
        reason=reason,
    )


def _reason(role: Role, size: int, target: int, snapshot: Snapshot, settings: DragonSettings) -> Reason:
    """Names the scarcest resource that the role uses: GPUs where it asks for any, else CPUs."""
    resource = "gpu" if role.template.requests.gpu else "cpu"
    admitted = snapshot.verdicts(rules_of(role.template)).admitted
    free = [snapshot.free_of(snapshot.room(name), resource) for name in admitted]
    idle, nodes = sum(free), sum(1 for amount in free if amount)
    where = f"on {counted(nodes, 'node')}"
    return Reason(
        code="Idle",
        message=(
            f"{demand_in_words(resource, idle)} idle for {settings.quiet_s} s {where}: "
            f"grow {role.name} from {size} to {target} (max {role.max})"
        ),
        numbers={
            f"idle.{resource}": idle,
            "nodes": nodes,
            "quiet_s": settings.quiet_s,
            "from": size,
            "to": target,
            "max": role.max,
        },
    )
