"""Diagnosis of a gang that does not fit: nodes excluded by each filter, and what is missing on the others.

A user decides by it whether to wait, to ask for less, or to ask for other nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_core.models import GPU_MILLI, PlacementPolicy, Reason
from muster_core.quantities import counted, format_amount, format_demand
from muster_core.scheduling.placement.affinity_layout import AffinityState
from muster_core.scheduling.placement.candidates import Candidates
from muster_core.scheduling.placement.filters import FILTERS, POD_AFFINITY
from muster_core.scheduling.placement.free_capacity import fit_count, unused_gpus
from muster_core.scheduling.placement.layout import ReplicaGroup
from muster_core.scheduling.placement.topology import most_in_one_domain, most_of

INSUFFICIENT_RESOURCES = "InsufficientResources"
NO_MATCHING_NODE = "NoMatchingNode"


class Miss(msgspec.Struct, frozen=True, kw_only=True):
    """A resource that is short in total: milli-CPU, milli-GPU, bytes or units; ``nodes`` have some of it free."""

    resource: str
    needed: int
    free: int
    nodes: int

    @property
    def short(self) -> int:
        """How much is missing."""
        return self.needed - self.free


class Shortfall(msgspec.Struct, frozen=True, kw_only=True):
    """Why the minimum of a gang does not fit."""

    #: Replicas that start together, and how many of them fit.
    needed: int
    placeable: int
    #: Nodes of the pool.
    nodes: int
    feasible_when_empty: bool
    #: The nodes that each filter excludes, by its name.
    filtered: tuple[tuple[str, int], ...] = ()
    #: The first role without a feasible node.
    unmatched: str = ""
    #: Resources that are short in total, relatively worst first. If empty, the free capacity is too scattered.
    misses: tuple[Miss, ...] = ()
    #: The first role that fits on no node.
    tight_role: str = ""
    #: Replicas that would start if the minimum were lower.
    fits_now: int = 0
    #: Whether inter-replica affinity is among the causes.
    has_affinity_rules: bool = False
    #: The label in one domain of which all replicas must be, the number of its domains, the best one and what it holds.
    topology: str = ""
    domains: int = 0
    best_domain: str = ""
    in_best_domain: int = 0


def shortfall_of(
    groups: Sequence[ReplicaGroup],
    candidates: Candidates,
    policy: PlacementPolicy,
    *,
    feasible: bool,
    fits_now: int,
) -> Shortfall:
    """Return why ``groups`` do not fit into ``candidates`` under ``policy``."""
    snapshot = candidates.snapshot
    results = {group.request.rules: snapshot.filter(group.request.rules) for group in groups}
    topology = policy.topology if policy.topology_required else ""
    in_best, best = most_in_one_domain(groups, candidates, policy) if topology else (0, "")
    filtered = {name: max(one.filtered.get(name, 0) for one in results.values()) for name in FILTERS}
    filtered[POD_AFFINITY] = _excluded_by_affinity(groups, candidates)
    return Shortfall(
        needed=sum(group.count for group in groups),
        placeable=most_of(groups, candidates, policy),
        nodes=len(snapshot.nodes),
        feasible_when_empty=feasible,
        filtered=tuple((name, number) for name, number in filtered.items() if number),
        unmatched=next((group.role for group in groups if not results[group.request.rules].feasible), ""),
        misses=_misses(groups, candidates),
        tight_role=next((group.role for group in groups if not _fits_somewhere(group, candidates)), ""),
        fits_now=fits_now,
        has_affinity_rules=any(
            group.request.affinity is not None and group.request.affinity.has_rules for group in groups
        ),
        topology=topology,
        domains=len(snapshot.domains(topology)) if topology else 0,
        best_domain=best,
        in_best_domain=in_best,
    )


def to_reason(shortfall: Shortfall) -> Reason:
    """Return the shortfall as a reason; numbers are in the units of ``Miss``."""
    numbers = {
        "needed_replicas": shortfall.needed,
        "placeable_replicas": shortfall.placeable,
        "nodes": shortfall.nodes,
        "feasible_when_empty": int(shortfall.feasible_when_empty),
    }
    if shortfall.fits_now:
        numbers["fits_now_replicas"] = shortfall.fits_now
    if shortfall.topology:
        numbers |= {"domains": shortfall.domains, "in_best_domain": shortfall.in_best_domain}
    numbers |= {f"filtered.{name}": number for name, number in shortfall.filtered}
    for miss in shortfall.misses:
        numbers[f"needed.{miss.resource}"] = miss.needed
        numbers[f"free.{miss.resource}"] = miss.free
        numbers[f"short.{miss.resource}"] = miss.short
    if not shortfall.nodes:
        return Reason(code=NO_MATCHING_NODE, message="the pool has no nodes", numbers=numbers)
    if shortfall.unmatched:
        message = f"no node is feasible for {shortfall.unmatched}: {_filtered_words(shortfall)}"
        return Reason(code=NO_MATCHING_NODE, message=message, numbers=numbers)
    parts = [nearest_miss(shortfall)]
    if shortfall.filtered:
        parts.append(_filtered_words(shortfall))
    if shortfall.fits_now:
        parts.append(f"{counted(shortfall.fits_now, 'replica')} would fit now")
    if not shortfall.feasible_when_empty:
        parts.append("the empty pool could not hold it either")
    return Reason(code=INSUFFICIENT_RESOURCES, message="; ".join(parts), numbers=numbers)


def nearest_miss(shortfall: Shortfall) -> str:
    """Return the nearest miss in words; empty if a role has no feasible node."""
    if shortfall.unmatched or not shortfall.nodes:
        return ""
    if shortfall.misses:
        return "; ".join(_miss_words(miss) for miss in shortfall.misses)
    return _domain_words(shortfall) if shortfall.topology else _tight_words(shortfall)


def _excluded_by_affinity(groups: Sequence[ReplicaGroup], candidates: Candidates) -> int:
    """Return how many feasible nodes inter-replica affinity excludes for the first replica of a group; the most of any."""
    requests = {group.request for group in groups if group.request.affinity is not None}
    snapshot = candidates.snapshot
    state = AffinityState(snapshot, requests)
    excluded = (
        sum(not state.is_feasible(one, snapshot.nodes[name]) for name in snapshot.filter(one.rules).feasible)
        for one in requests
    )
    return max(excluded, default=0)


def _misses(groups: Sequence[ReplicaGroup], candidates: Candidates) -> tuple[Miss, ...]:
    needed: dict[str, int] = {}
    for group in groups:
        demand = group.request.demand
        amounts = dict(demand.amounts)
        amounts["gpu"] = demand.gpus * GPU_MILLI + demand.gpu_share
        amounts["gpu_memory"] = demand.gpu_memory * max(demand.gpus, 1)
        for resource, amount in amounts.items():
            if amount:
                needed[resource] = needed.get(resource, 0) + amount * group.count
    whole_only = all(not group.request.demand.gpu_share for group in groups)
    misses = (_miss(resource, amount, candidates, whole_only) for resource, amount in needed.items())
    short = [miss for miss in misses if miss.short > 0]
    return tuple(sorted(short, key=lambda miss: (-(miss.short * GPU_MILLI // miss.needed), miss.resource)))


def _miss(resource: str, needed: int, candidates: Candidates, whole_only: bool) -> Miss:
    total = nodes = 0
    for node_set in candidates.node_sets:
        if resource == "gpu" and whole_only:
            free = unused_gpus(node_set.capacity) * GPU_MILLI
        else:
            free = candidates.snapshot.free_of(node_set.capacity, resource)
        total += free * len(node_set.names)
        nodes += len(node_set.names) if free else 0
    return Miss(resource=resource, needed=needed, free=total, nodes=nodes)


def _fits_somewhere(group: ReplicaGroup, candidates: Candidates) -> bool:
    return any(
        group.rule in node_set.feasible_for and fit_count(node_set.capacity, group.need, 1)
        for node_set in candidates.node_sets
    )


def _miss_words(miss: Miss) -> str:
    needed, free = format_amount(miss.resource, miss.needed), format_amount(miss.resource, miss.free)
    where = f"on {counted(miss.nodes, 'node')}" if miss.nodes else "on any node"
    return f"short of {format_demand(miss.resource, miss.short)}: {free} of {needed} needed are free, {where}"


def _tight_words(shortfall: Shortfall) -> str:
    placeable = (
        f"{shortfall.placeable} of the {counted(shortfall.needed, 'replica')} that start together would fit"
    )
    if shortfall.tight_role:
        return f"{placeable}: no node has enough free for one {shortfall.tight_role}"
    if shortfall.has_affinity_rules:
        return f"{placeable}: the rules about other pods exclude the rest"
    return f"{placeable}: there is enough in total, but scattered over nodes"


def _domain_words(shortfall: Shortfall) -> str:
    needed = counted(shortfall.needed, "replica")
    among = f"of {counted(shortfall.domains, 'domain')} of {shortfall.topology}"
    if not shortfall.best_domain:
        return f"{among}, none holds any of the {needed} that start together"
    return f"{among}, the best ({shortfall.best_domain}) holds {shortfall.in_best_domain} of the {needed} that start together"


def _filtered_words(shortfall: Shortfall) -> str:
    parts = [f"{number} {FILTERS[name]}" for name, number in shortfall.filtered]
    return f"of {counted(shortfall.nodes, 'node')}, {', '.join(parts)}"
