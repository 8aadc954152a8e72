"""Which way of laying out a gang its policy asks for.

Packed gangs try one node first, because one node is always one domain. A topology bounds where the rest may stand; the strategy says how
they stand inside.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.models import PlacementPolicy, Strategy
from muster_core.scheduling.placement.domains import lay_out_in_domains
from muster_core.scheduling.placement.evenly import lay_out_evenly
from muster_core.scheduling.placement.field import Field
from muster_core.scheduling.placement.layout import Group, Layout, lay_out, most_that_fit, on_one_node
from muster_core.scheduling.placement.one_by_one import lay_out_one_by_one, most_one_by_one


def arrange(groups: Sequence[Group], field: Field, policy: PlacementPolicy) -> Layout | None:
    """Room for all of ``groups`` as ``policy`` asks, or None; deterministic."""
    if not all(group.need.possible for group in groups):
        return None
    if not policy.topology:
        return _inside(groups, field, policy)
    if policy.strategy is Strategy.PACK and not _ask(groups):
        on_one = on_one_node(groups, field)
        if on_one is not None:
            return on_one
    return lay_out_in_domains(
        groups,
        field,
        policy.topology,
        required=policy.topology_required,
        lay_out=lambda some, bound: _inside(some, bound, policy),
    )


def most_of(groups: Sequence[Group], field: Field, policy: PlacementPolicy) -> int:
    """Return how many of the replicas fit, wherever they go."""
    if _ask(groups):
        return most_one_by_one(groups, field, spread=policy.strategy is Strategy.SPREAD)
    return most_that_fit(groups, field)


def most_in_one_domain(groups: Sequence[Group], field: Field, policy: PlacementPolicy) -> tuple[int, str]:
    """Return how many of the replicas fit into one domain of the policy's topology, and the name of the best domain."""
    domains = field.snapshot.domains(policy.topology)
    totals = [field.fits(group.slot).totals(policy.topology) for group in groups]
    bounds = sorted(
        (-sum(min(one.sum(domain), group.count) for one, group in zip(totals, groups, strict=True)), domain)
        for domain in domains
    )
    best = (0, "")
    for bound, domain in bounds:
        if -bound <= best[0]:
            break
        most = most_of(groups, field.within(domains[domain]), policy)
        if most > best[0]:
            best = (most, domain)
    return best


def _inside(groups: Sequence[Group], field: Field, policy: PlacementPolicy) -> Layout | None:
    spread = policy.strategy is Strategy.SPREAD
    if _ask(groups):
        return lay_out_one_by_one(groups, field, spread=spread)
    return lay_out_evenly(groups, field) if spread else lay_out(groups, field)


def _ask(groups: Sequence[Group]) -> bool:
    return any(group.slot.peer is not None for group in groups)
