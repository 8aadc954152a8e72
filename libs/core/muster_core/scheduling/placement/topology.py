"""The layout that a placement policy asks for: strategy and topology domains.

A domain is the nodes with equal values of a label: a rack, a zone. A packed gang tries one node first, because one node is
always one domain, then the smallest domain that holds it, else as few domains as possible. The size of a domain is how many
replicas of the gang's largest group fit, so that a small gang does not break into a domain that a large one needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from muster_core.models import PlacementPolicy, Strategy
from muster_core.scheduling.placement.affinity_layout import lay_out_one_by_one, most_one_by_one
from muster_core.scheduling.placement.candidates import Field
from muster_core.scheduling.placement.fit_index import Totals
from muster_core.scheduling.placement.layout import (
    Group,
    Layout,
    lay_out,
    lay_out_evenly,
    most_that_fit,
    on_one_node,
)

LayOut = Callable[[Sequence[Group], Field], Layout | None]


def lay_out_in_domains(
    groups: Sequence[Group], field: Field, label: str, *, required: bool, lay_out: LayOut
) -> Layout | None:
    """Lay out ``groups`` in one domain of ``label`` by ``lay_out``; if none holds them and it is not ``required``, in few."""
    if not all(group.need.possible for group in groups):
        return None
    in_one = _in_one(groups, field, label, lay_out)
    if in_one is not None or required:
        return in_one
    return _in_few(groups, field, label, lay_out) or lay_out(groups, field)


def _in_one(groups: Sequence[Group], field: Field, label: str, lay_out: LayOut) -> Layout | None:
    leader = _leader(groups)
    totals = _totals(groups, field, label)
    for domain in totals[leader].holding(groups[leader].count):
        if all(one.sum(domain) >= group.count for one, group in zip(totals, groups, strict=True)):
            layout = lay_out(groups, field.within(_names(field, label, (domain,))))
            if layout is not None:
                return layout
    return None


def _in_few(groups: Sequence[Group], field: Field, label: str, lay_out: LayOut) -> Layout | None:
    """Return the largest domains, then the smallest that holds the rest; twice as many each time until it fits."""
    leader = _leader(groups)
    totals = _totals(groups, field, label)[leader]
    descending = list(totals.descending())
    chosen: list[str] = []
    missing = groups[leader].count
    for domain in descending:
        last = next((one for one in totals.holding(missing) if one not in chosen), None)
        chosen.append(last or domain)
        missing -= totals.sum(chosen[-1])
        if missing <= 0:
            break
    if missing > 0:
        return None
    while True:
        layout = lay_out(groups, field.within(_names(field, label, chosen)))
        if layout is not None or len(chosen) == len(descending):
            return layout
        others = (domain for domain in descending if domain not in chosen)
        chosen += [domain for domain, _ in zip(others, tuple(chosen), strict=False)]


def _leader(groups: Sequence[Group]) -> int:
    """Return the position of the largest group, the first of equals."""
    return max(range(len(groups)), key=lambda position: (groups[position].count, -position))


def _totals(groups: Sequence[Group], field: Field, label: str) -> list[Totals]:
    return [field.fits(group.slot).totals(label) for group in groups]


def _names(field: Field, label: str, domains: Sequence[str]) -> Sequence[str]:
    """Return the nodes of ``domains`` within the field."""
    by_domain = field.snapshot.domains(label)
    names = by_domain[domains[0]] if len(domains) == 1 else sorted(n for d in domains for n in by_domain[d])
    if field.names is None:
        return names
    bound = frozenset(field.names)
    return [name for name in names if name in bound]


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
