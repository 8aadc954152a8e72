"""The layout that a placement policy asks for: strategy and topology domains.

A domain is the nodes with equal values of a label: a rack, a zone. A packed gang tries one node first, because one node is
always one domain, then the smallest domain that holds it, else as few domains as possible. The size of a domain is how many
replicas of the gang's largest group fit, so that a small gang does not break into a domain that a large one needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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

LayoutFunction = Callable[[Sequence[ReplicaGroup], Candidates], Layout | None]


def lay_out_in_domains(
    groups: Sequence[ReplicaGroup],
    candidates: Candidates,
    label: str,
    *,
    required: bool,
    lay_out: LayoutFunction,
) -> Layout | None:
    """Lay out ``groups`` in one domain of ``label`` by ``lay_out``; if none holds them and it is not ``required``, in few."""
    if not all(group.need.possible for group in groups):
        return None
    in_one = _in_one(groups, candidates, label, lay_out)
    if in_one is not None or required:
        return in_one
    return _in_few(groups, candidates, label, lay_out) or lay_out(groups, candidates)


def _in_one(
    groups: Sequence[ReplicaGroup], candidates: Candidates, label: str, lay_out: LayoutFunction
) -> Layout | None:
    leader = _leader(groups)
    totals = _totals(groups, candidates, label)
    for domain in totals[leader].at_least(groups[leader].count):
        if all(one.sum(domain) >= group.count for one, group in zip(totals, groups, strict=True)):
            layout = lay_out(groups, candidates.within(_names(candidates, label, (domain,))))
            if layout is not None:
                return layout
    return None


def _in_few(
    groups: Sequence[ReplicaGroup], candidates: Candidates, label: str, lay_out: LayoutFunction
) -> Layout | None:
    """Return the largest domains, then the smallest that holds the rest; twice as many each time until it fits."""
    leader = _leader(groups)
    totals = _totals(groups, candidates, label)[leader]
    descending = list(totals.descending())
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
        layout = lay_out(groups, candidates.within(_names(candidates, label, chosen)))
        if layout is not None or len(chosen) == len(descending):
            return layout
        others = (domain for domain in descending if domain not in chosen)
        chosen += [domain for domain, _ in zip(others, tuple(chosen), strict=False)]


def _leader(groups: Sequence[ReplicaGroup]) -> int:
    """Return the position of the largest group, the first of equals."""
    return max(range(len(groups)), key=lambda position: (groups[position].count, -position))


def _totals(groups: Sequence[ReplicaGroup], candidates: Candidates, label: str) -> list[DomainTotals]:
    return [candidates.fit_index(group.request).totals(label) for group in groups]


def _names(candidates: Candidates, label: str, domains: Sequence[str]) -> Sequence[str]:
    by_domain = candidates.snapshot.domains(label)
    return by_domain[domains[0]] if len(domains) == 1 else sorted(n for d in domains for n in by_domain[d])


def find_layout(
    groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy
) -> Layout | None:
    """Room for all of ``groups`` as ``policy`` asks, or None; deterministic."""
    if not all(group.need.possible for group in groups):
        return None
    if not policy.topology:
        return _inside(groups, candidates, policy)
    if policy.strategy is Strategy.PACK and not _have_affinity(groups):
        on_one = on_one_node(groups, candidates)
        if on_one is not None:
            return on_one
    return lay_out_in_domains(
        groups,
        candidates,
        policy.topology,
        required=policy.topology_required,
        lay_out=lambda some, bound: _inside(some, bound, policy),
    )


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
    totals = [candidates.fit_index(group.request).totals(policy.topology) for group in groups]
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


def _inside(groups: Sequence[ReplicaGroup], candidates: Candidates, policy: PlacementPolicy) -> Layout | None:
    spread = policy.strategy is Strategy.SPREAD
    if _have_affinity(groups):
        return lay_out_with_affinity(groups, candidates, spread=spread)
    return lay_out_spread(groups, candidates) if spread else lay_out(groups, candidates)


def _have_affinity(groups: Sequence[ReplicaGroup]) -> bool:
    return any(group.request.affinity is not None for group in groups)
