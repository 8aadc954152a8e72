"""Reasons of resizes, in words and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.autoscaling.shell import Elastic
from muster_core.autoscaling.standing import Standing
from muster_core.autoscaling.waiting import Head
from muster_core.lifecycle import MILLI
from muster_core.models import Reason
from muster_core.scheduling.placement import Snapshot
from muster_core.scheduling.placement.admission import rules_of
from muster_core.scheduling.placement.words import counted, demand_in_words
from muster_core.scheduling.resizing import DonatedReplica

IDLE = "Idle"
"""The code of growth into idle capacity."""

MAKES_ROOM = "MakesRoom"
"""The code of shrinking for a starved job."""

_US = 1_000_000


def idle_reason(elastic: Elastic, before: Standing, after: Standing, snapshot: Snapshot) -> Reason:
    """Return the reason of a growth. It names GPUs if the role uses any, else CPUs; ``snapshot`` is from before all growth."""
    role, numbers = elastic.role, elastic.numbers
    resource = "gpu" if role.template.requests.gpu else "cpu"
    admitted = snapshot.verdicts(rules_of(role.template)).admitted
    free = [
        snapshot.free_of(snapshot.room(name), resource)
        for name in admitted
        if snapshot.class_of(name) is not None
    ]
    idle, nodes = sum(free), sum(1 for amount in free if amount)
    idle_period_s = numbers.quiet_us // _US
    return Reason(
        code=IDLE,
        message=(
            f"{demand_in_words(resource, idle)} idle for {idle_period_s} s on {counted(nodes, 'node')}: "
            f"grow {role.name} from {before.size} to {after.size} (max {role.max})"
        ),
        numbers={
            f"idle.{resource}": idle,
            "nodes": nodes,
            "idle_period_s": idle_period_s,
            "from": before.size,
            "to": after.size,
            "max": role.max,
            **_speed_up(before, after),
        },
    )


def room_reason(
    giver: Elastic, before: Standing, gifts: Sequence[DonatedReplica], head: Head, now: int
) -> Reason:
    """Return the reason of a scale-down by ``gifts`` at ``now`` (µs): the beneficiary, and how long it has waited."""
    role = giver.role
    waited_s = (now - head.record.waiting_since) // _US
    after = before.changed(-len(gifts))
    nodes = sorted({gift.allocation.node for gift in gifts})
    who = f"{head.record.name} ({head.record.job_id})"
    return Reason(
        code=MAKES_ROOM,
        message=(
            f"{counted(len(gifts), 'replica')} of {before.size} on {', '.join(nodes)} make room for {who}, "
            f"which has waited {waited_s} s: shrink {role.name} to {after.size} (min {role.min})"
        ),
        numbers={
            "waited_s": waited_s,
            "from": before.size,
            "to": after.size,
            "min": role.min,
            **_speed_up(before, after),
        },
    )


def _speed_up(before: Standing, after: Standing) -> dict[str, int]:
    """Return the speed-up at both sizes, in thousandths of a worker."""
    return {
        "speed_up.from": int(before.speed_up.at(before.workers) * MILLI),
        "speed_up.to": int(after.speed_up.at(after.workers) * MILLI),
        "serial": int(before.speed_up.serial * MILLI),
    }
