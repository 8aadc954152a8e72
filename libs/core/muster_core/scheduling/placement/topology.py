"""The layout that a placement policy asks for: strategy and topology domains.

A domain is the nodes with equal values of a label: a rack, a zone. A packed gang tries one node first, because one node is
always one domain, then the smallest domain that holds it, else as few domains as possible. The size of a domain is how many
replicas of the gang's largest group fit, so that a small gang does not break into a domain that a large one needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.models import PlacementPolicy, Strategy
from muster_core.scheduling.placement.affinity_layout import lay_out_with_affinity, most_with_affinity
from muster_core.scheduling.placement.candidates import Candidates
from muster_core.scheduling.placement.fit_index import DomainTotals
from muster_core.scheduling.placement.layout import (
    Layout,
    ReplicaGroup,
    lay_out,
    lay_out_spread,
    most_that_fit,
    on_one_node,
)


def find_layout(
    groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy
) -> Layout | None:
    """Return a layout of all of ``groups`` by ``policy``, or None; deterministic."""
    if not all(group.need.possible for group in groups):
        return None
    if not policy.topology:
        return _any_domain(groups, candidates, policy)
    if policy.strategy is Strategy.PACK and not _have_affinity(groups):
        on_one = on_one_node(groups, candidates)
        if on_one is not None:
            return on_one
    in_one = _one_domain(groups, candidates, policy)
    if in_one is not None or policy.topology_required:
        return in_one
    return _few_domains(groups, candidates, policy) or _any_domain(groups, candidates, policy)


def most_of(groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy) -> int:
    """Return how many of the replicas fit, wherever they go."""
    if _have_affinity(groups):
        return most_with_affinity(groups, candidates, spread=policy.strategy is Strategy.SPREAD)
    return most_that_fit(groups, candidates)


def most_in_one_domain(
    groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy
) -> tuple[int, str]:
    """Return how many of the replicas fit into one domain of the policy's topology, and the name of the best domain."""
    domains = candidates.snapshot.domains(policy.topology)
    totals = _totals(groups, candidates, policy)
    bounds = sorted(
        (-sum(min(one.sum(domain), group.count) for one, group in zip(totals, groups, strict=True)), domain)
        for domain in domains
    )
    best = (0, "")
    for bound, domain in bounds:
        if -bound <= best[0]:
            break
        most = most_of(groups, candidates.within(domains[domain]), policy)
        if most > best[0]:
            best = (most, domain)
    return best


def _any_domain(
    groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy
) -> Layout | None:
    spread = policy.strategy is Strategy.SPREAD
    if _have_affinity(groups):
        return lay_out_with_affinity(groups, candidates, spread=spread)
    return lay_out_spread(groups, candidates) if spread else lay_out(groups, candidates)


def _one_domain(
    groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy
) -> Layout | None:
    leader = _leader(groups)
    totals = _totals(groups, candidates, policy)
    for domain in totals[leader].at_least(groups[leader].count):
        if all(one.sum(domain) >= group.count for one, group in zip(totals, groups, strict=True)):
            layout = _any_domain(groups, _within(candidates, policy, (domain,)), policy)
            if layout is not None:
                return layout
    return None


def _few_domains(
    groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy
) -> Layout | None:
    """Use the largest domains, then the smallest that holds the rest; twice as many each time until the gang fits."""
    leader = _leader(groups)
    totals = _totals(groups, candidates, policy)[leader]
    descending = totals.descending()
    chosen: list[str] = []
    missing = groups[leader].count
    for domain in descending:
        last = next((one for one in totals.at_least(missing) if one not in chosen), None)
        chosen.append(last or domain)
        missing -= totals.sum(chosen[-1])
        if missing <= 0:
            break
    if missing > 0:
        return None
    while True:
        layout = _any_domain(groups, _within(candidates, policy, chosen), policy)
        if layout is not None or len(chosen) == len(descending):
            return layout
        others = (domain for domain in descending if domain not in chosen)
        chosen += [domain for domain, _ in zip(others, tuple(chosen), strict=False)]


def _leader(groups: Sequence[ReplicaGroup]) -> int:
    """Return the position of the largest group, the first of equals."""
    return max(range(len(groups)), key=lambda position: (groups[position].count, -position))


def _totals(
    groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy
) -> list[DomainTotals]:
    return [candidates.fit_index(group.request).totals(policy.topology) for group in groups]


def _within(candidates: Candidates, policy: PlacementPolicy, domains: Sequence[str]) -> Candidates:
    nodes = candidates.snapshot.domains(policy.topology)
    if len(domains) == 1:
        return candidates.within(nodes[domains[0]])
    return candidates.within(sorted(name for domain in domains for name in nodes[domain]))


def _have_affinity(groups: Sequence[ReplicaGroup]) -> bool:
    return any(group.request.affinity is not None for group in groups)
