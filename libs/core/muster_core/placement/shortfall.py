"""Why a gang has no room, as numbers: what rules out how many nodes, and what is missing on the others.

A gang that waits must be able to say how near it is, so that its user knows whether to wait, to ask for less or to ask for other nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_core.models import GPU_MILLI, Reason
from muster_core.placement.admission import CONSTRAINTS
from muster_core.placement.field import Field
from muster_core.placement.layout import Group, most_that_fit
from muster_core.placement.room import count, whole_gpus
from muster_core.placement.words import amount_in_words, counted, demand_in_words

INSUFFICIENT_RESOURCES = "InsufficientResources"
NO_MATCHING_NODE = "NoMatchingNode"

_RULED_OUT_WORDS = {
    "NotReady": "not ready",
    "Unschedulable": "cordoned",
    "Taint": "tainted and not tolerated",
    "NodeSelector": "without the labels selected",
    "NodeAffinity": "outside the required affinity",
}


class Miss(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of which there is too little in all: milli-CPU, milli-GPU, bytes or units; ``nodes`` have some of it free."""

    resource: str
    needed: int
    free: int
    nodes: int

    @property
    def short(self) -> int:
        """How much is missing."""
        return self.needed - self.free


class Shortfall(msgspec.Struct, frozen=True, kw_only=True):
    """Why the gang's floor has no room.

    ``ruled_out`` are (constraint, nodes) pairs, of ``nodes`` in all. ``unmatched`` is the first role that no node admits.
    ``misses`` has the resources that are short in all, relatively worst first; where it is empty there is enough, but not
    in pieces that are large enough: then ``tight_role`` is a role that fits on no node, or empty. ``placeable`` of
    ``needed`` replicas would find room.
    """

    needed: int
    placeable: int
    nodes: int
    feasible_when_empty: bool
    ruled_out: tuple[tuple[str, int], ...] = ()
    unmatched: str = ""
    misses: tuple[Miss, ...] = ()
    tight_role: str = ""


def shortfall_of(groups: Sequence[Group], field: Field, *, feasible: bool) -> Shortfall:
    """Why ``groups``, which found no room in ``field``, found none."""
    snapshot = field.snapshot
    verdicts = {group.rules: snapshot.verdicts(group.rules) for group in groups}
    ruled_out = {
        constraint: max(verdict.ruled_out.get(constraint, 0) for verdict in verdicts.values())
        for constraint in CONSTRAINTS
    }
    return Shortfall(
        needed=sum(group.count for group in groups),
        placeable=most_that_fit(groups, field),
        nodes=len(snapshot.nodes),
        feasible_when_empty=feasible,
        ruled_out=tuple((constraint, number) for constraint, number in ruled_out.items() if number),
        unmatched=next((group.role for group in groups if not verdicts[group.rules].admitted), ""),
        misses=_misses(groups, field),
        tight_role=next((group.role for group in groups if not _fits_somewhere(group, field)), ""),
    )


def to_reason(shortfall: Shortfall) -> Reason:
    """The shortfall for people and programs; numbers are in the units of ``Miss``."""
    numbers = {
        "needed_replicas": shortfall.needed,
        "placeable_replicas": shortfall.placeable,
        "nodes": shortfall.nodes,
        "feasible_when_empty": int(shortfall.feasible_when_empty),
    }
    numbers |= {f"ruled_out.{constraint}": number for constraint, number in shortfall.ruled_out}
    for miss in shortfall.misses:
        numbers[f"needed.{miss.resource}"] = miss.needed
        numbers[f"free.{miss.resource}"] = miss.free
        numbers[f"short.{miss.resource}"] = miss.short
    if not shortfall.nodes:
        return Reason(code=NO_MATCHING_NODE, message="the pool has no nodes", numbers=numbers)
    if shortfall.unmatched:
        message = f"no node admits {shortfall.unmatched}: {_ruled_out_words(shortfall)}"
        return Reason(code=NO_MATCHING_NODE, message=message, numbers=numbers)
    parts = [_miss_words(miss) for miss in shortfall.misses] or [_tight_words(shortfall)]
    if shortfall.ruled_out:
        parts.append(_ruled_out_words(shortfall))
    if not shortfall.feasible_when_empty:
        parts.append("the empty pool could not hold it either")
    return Reason(code=INSUFFICIENT_RESOURCES, message="; ".join(parts), numbers=numbers)


def _misses(groups: Sequence[Group], field: Field) -> tuple[Miss, ...]:
    needed: dict[str, int] = {}
    for group in groups:
        amounts = dict(group.demand.amounts)
        amounts["gpu"] = group.demand.gpus * GPU_MILLI + group.demand.gpu_share
        amounts["gpu_memory"] = group.demand.gpu_memory * max(group.demand.gpus, 1)
        for resource, amount in amounts.items():
            if amount:
                needed[resource] = needed.get(resource, 0) + amount * group.count
    whole_only = all(not group.demand.gpu_share for group in groups)
    misses = [_miss(resource, amount, field, whole_only=whole_only) for resource, amount in needed.items()]
    short = [miss for miss in misses if miss.short > 0]
    return tuple(sorted(short, key=lambda miss: (-(miss.short * GPU_MILLI // miss.needed), miss.resource)))


def _miss(resource: str, needed: int, field: Field, *, whole_only: bool) -> Miss:
    free = nodes = 0
    for spot in field.spots:
        untouched = whole_gpus(spot.room) * GPU_MILLI
        one = untouched if resource == "gpu" and whole_only else field.snapshot.free_of(spot.room, resource)
        free += one * len(spot.names)
        nodes += len(spot.names) if one else 0
    return Miss(resource=resource, needed=needed, free=free, nodes=nodes)


def _fits_somewhere(group: Group, field: Field) -> bool:
    return any(group.rule in spot.admits and count(spot.room, group.need, 1) for spot in field.spots)


def _miss_words(miss: Miss) -> str:
    needed, free = amount_in_words(miss.resource, miss.needed), amount_in_words(miss.resource, miss.free)
    where = f"on {counted(miss.nodes, 'node')}" if miss.nodes else "on any node"
    return (
        f"short of {demand_in_words(miss.resource, miss.short)}: {free} of {needed} needed are free, {where}"
    )


def _tight_words(shortfall: Shortfall) -> str:
    placeable = (
        f"room for {shortfall.placeable} of the {counted(shortfall.needed, 'replica')} that start together"
    )
    if shortfall.tight_role:
        return f"{placeable}: no node has enough free for one {shortfall.tight_role}"
    return f"{placeable}: there is enough in all, but scattered over nodes"


def _ruled_out_words(shortfall: Shortfall) -> str:
    total = counted(shortfall.nodes, "node")
    parts = [f"{number} {_RULED_OUT_WORDS[constraint]}" for constraint, number in shortfall.ruled_out]
    return f"of {total}, {', '.join(parts)}"
