"""The node-fit index: how many times a demand fits on each node of the pool, updated as free capacity changes.

The same few demands are placed again and again, and each placement changes a few nodes of thousands. Updating an order of
nodes costs as much as the changes, sorting it again as much as the pool.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from muster_core.scheduling.placement.filters import FilterResults, NodeRules
from muster_core.scheduling.placement.free_capacity import FreeCapacity
from muster_core.scheduling.placement.snapshot import Snapshot

_FEWEST_KEPT = 400_000
_VIEWS_KEPT = 2_000
_CAPACITIES_KEPT = 1 << 14
_ALL_AT_ONCE = 4
"""If more than one in this many nodes changed, all are recomputed by class, which is cheaper."""

Measure = Callable[[FreeCapacity], tuple[int, int]]
"""Returns how many times the demand fits into a free capacity, and the increase of fragmentation."""


class Fit(NamedTuple):
    """A node on which the demand fits ``times`` times; ordered by cost: penalty, fragmentation, slack, name."""

    penalty: int
    fragmentation: int
    slack: int
    name: str
    times: int


class FitIndex:
    """The nodes that pass all of ``rules``, by how many times the demand that ``measure`` counts fits; ``total`` is the sum.

    Call ``refresh`` before queries.
    """

    def __init__(self, snapshot: Snapshot, rules: Sequence[NodeRules], measure: Measure) -> None:
        self._snapshot = snapshot
        self._rules = tuple(rules)
        self._measure = measure
        self._measured: dict[FreeCapacity, tuple[int, int]] = {}
        self._fits: dict[str, Fit] = {}
        self._by_times: dict[int, list[Fit]] = {}
        self._totals: dict[str, DomainTotals] = {}
        self.total = 0
        self._seen = -1
        self._filter_results: list[FilterResults] = []

    @property
    def weight(self) -> int:
        """How many nodes and capacities it keeps."""
        return len(self._fits) + len(self._measured)

    def refresh(self) -> None:
        """Update the nodes that changed since the last call."""
        change_log = self._snapshot.change_log
        if self._seen == change_log.end:
            return
        changed = change_log.since(self._seen)
        self._seen = change_log.end
        self._filter_results = [self._snapshot.filter(rule) for rule in self._rules]
        if changed is None or len(changed) * _ALL_AT_ONCE > len(self._snapshot.nodes):
            self._rebuild()
            return
        for name in changed:
            self._update(name)

    @property
    def names(self) -> Iterable[str]:
        """The nodes that have a fit."""
        return self._fits.keys()

    def times(self, name: str) -> int:
        """Return how many times the demand fits on a node."""
        fit = self._fits.get(name)
        return fit.times if fit else 0

    def among(self, names: Sequence[str]) -> list[Fit]:
        """Return the fits on ``names``, without nodes that have none."""
        fits = self._fits
        return [fits[name] for name in names if name in fits]

    def best(self, times: int) -> Fit | None:
        """Return the cheapest node with at least ``times`` fits."""
        tops = [self._top(number) for number in self._by_times if number >= times]
        return min((top for top in tops if top is not None), default=None)

    def pack(self, number: int) -> list[tuple[str, int]] | None:
        """Return the fewest nodes, the cheapest of equals, for ``number`` replicas, with the number on each; None if too many."""
        if self.total < number:
            return None
        chosen: list[tuple[str, int]] = []
        taken: list[Fit] = []
        sizes = sorted(self._by_times)
        while sizes:
            last = self.best(number) if sizes[-1] >= number else None
            if last is not None:
                chosen.append((last.name, number))
                break
            top = self._top(sizes[-1])
            if top is None or top.times >= number:
                sizes.pop()
                continue
            taken.append(self._pop(top))
            chosen.append((top.name, top.times))
            number -= top.times
        for fit in taken:
            heapq.heappush(self._by_times[fit.times], fit)
        return chosen

    def totals(self, label: str) -> DomainTotals:
        """Return how many times the demand fits in each domain of a node label; kept up to date."""
        totals = self._totals.get(label)
        if totals is None:
            nodes = self._snapshot.nodes
            totals = self._totals[label] = DomainTotals()
            for name, fit in self._fits.items():
                totals.put(name, nodes[name].labels.get(label), fit.times)
        return totals

    def _rebuild(self) -> None:
        self._fits.clear()
        self._by_times.clear()
        self._totals.clear()
        self.total = 0
        results = self._filter_results
        penalties = [one.penalties for one in results if one.penalties]
        self._measured.clear()
        for one in self._snapshot.classes:
            times, fragmentation = self._measure(one.capacity)
            if not times:
                continue
            names: Sequence[str] = one.names
            for result in results:
                feasible = result.feasible
                names = [name for name in names if name in feasible]
            if not names:
                continue
            slack = self._snapshot.slack(one)
            fits = [
                Fit(
                    sum(some.get(name, 0) for some in penalties) if penalties else 0,
                    fragmentation,
                    slack,
                    name,
                    times,
                )
                for name in names
            ]
            self._fits.update(zip(names, fits, strict=True))
            self._by_times.setdefault(times, []).extend(fits)
            self.total += times * len(fits)
        for fits in self._by_times.values():
            heapq.heapify(fits)

    def _update(self, name: str) -> None:
        fit = self._evaluated(name)
        before = self._fits.get(name)
        if fit == before and not self._totals:
            return
        if before is not None:
            del self._fits[name]
            self.total -= before.times
        if fit is not None:
            self._fits[name] = fit
            self.total += fit.times
            if fit != before:
                self._push(fit)
        for label, totals in self._totals.items():
            node = self._snapshot.nodes.get(name)
            totals.put(name, node.labels.get(label) if node else None, fit.times if fit else 0)

    def _evaluated(self, name: str) -> Fit | None:
        one = self._snapshot.class_of(name)
        if one is None:
            return None
        times, fragmentation = self._measured.get(one.capacity) or self._measure_anew(one.capacity)
        if not times:
            return None
        penalty = 0
        for results in self._filter_results:
            if name not in results.feasible:
                return None
            if results.penalties:
                penalty += results.penalties.get(name, 0)
        return Fit(penalty, fragmentation, self._snapshot.slack(one), name, times)

    def _measure_anew(self, capacity: FreeCapacity) -> tuple[int, int]:
        if len(self._measured) >= _CAPACITIES_KEPT:
            self._measured.clear()
        measured = self._measured[capacity] = self._measure(capacity)
        return measured

    def _push(self, fit: Fit) -> None:
        heap = self._by_times.setdefault(fit.times, [])
        heapq.heappush(heap, fit)
        if len(heap) > 4 * len(self._fits) + 64:
            alive = (one for one in self._fits.values() if one.times == fit.times)
            heap[:] = alive
            heapq.heapify(heap)

    def _pop(self, top: Fit) -> Fit:
        """Remove ``top`` from its heap, which may contain it more than once."""
        heap = self._by_times[top.times]
        while heap and heap[0] == top:
            heapq.heappop(heap)
        return top

    def _top(self, times: int) -> Fit | None:
        """Return the cheapest node with exactly ``times`` fits, dropping outdated entries."""
        heap = self._by_times[times]
        while heap:
            top = heap[0]
            if self._fits.get(top.name) == top:
                return top
            heapq.heappop(heap)
        return None


class DomainTotals:
    """The sum of fits over the nodes of each domain, and the domains ordered by sum."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, int]] = {}
        self._sums: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []
        self._ordered_by: dict[str, int] = {}
        self._moved: set[str] = set()

    def put(self, name: str, domain: str | None, times: int) -> None:
        """Set the fits on a node of ``domain`` (None: of no domain)."""
        before = self._of.get(name)
        now = (domain, times) if domain is not None and times else None
        if before == now:
            return
        if before is not None:
            self._sums[before[0]] -= before[1]
            self._moved.add(before[0])
        if now is None:
            self._of.pop(name, None)
            return
        self._of[name] = now
        self._sums[now[0]] = self._sums.get(now[0], 0) + now[1]
        self._moved.add(now[0])

    def sum(self, domain: str) -> int:
        """Return the fits in a domain."""
        return self._sums.get(domain, 0)

    def at_least(self, times: int) -> Iterator[str]:
        """Yield the domains with at least ``times`` fits, the smallest first."""
        order = self._in_order()
        for position in range(bisect_left(order, (times, "")), len(order)):
            yield order[position][1]

    def descending(self) -> list[str]:
        """Return every domain that has fits, the largest first, then by name."""
        return [domain for _, domain in sorted(self._in_order(), key=lambda one: (-one[0], one[1]))]

    def _in_order(self) -> list[tuple[int, str]]:
        """Return the domains ordered by sum. A gang changes many nodes of few domains, so each domain moves once, on demand."""
        if len(self._moved) * _ALL_AT_ONCE > len(self._sums):
            self._sums = {domain: total for domain, total in self._sums.items() if total}
            self._ordered_by = dict(self._sums)
            self._order = sorted((total, domain) for domain, total in self._sums.items())
        else:
            for domain in self._moved:
                self._move(domain)
        self._moved.clear()
        return self._order

    def _move(self, domain: str) -> None:
        before, now = self._ordered_by.pop(domain, 0), self._sums[domain]
        if before:
            del self._order[bisect_left(self._order, (before, domain))]
        if now:
            self._ordered_by[domain] = now
            insort(self._order, (now, domain))
        else:
            del self._sums[domain]


def fit_index_of(
    snapshot: Snapshot, key: tuple[object, ...], rules: Sequence[NodeRules], measure: Measure
) -> FitIndex:
    """Return the up-to-date index of ``measure`` for ``rules``; if there are too many, the least recently used are dropped."""
    views = snapshot.views
    known = views.pop(key, None)
    if isinstance(known, FitIndex):
        views[key] = known
        known.refresh()
        return known
    fits = views[key] = FitIndex(snapshot, rules, measure)
    fits.refresh()
    kept = max(_FEWEST_KEPT, 16 * len(snapshot.nodes))
    total = sum(view.weight for view in views.values())
    while len(views) > 1 and (total > kept or len(views) > _VIEWS_KEPT):
        total -= views.pop(next(iter(views))).weight
    return fits


def pack_among(fits: Sequence[Fit], number: int) -> list[tuple[str, int]] | None:
    """Return the same as ``FitIndex.pack``, on these nodes only."""
    if not fits or sum(fit.times for fit in fits) < number:
        return None
    chosen: list[tuple[str, int]] = []
    rest = sorted(fits, key=lambda fit: (-fit.times, fit))
    for position, fit in enumerate(rest):
        if fit.times >= number:
            last = min(one for one in rest[position:] if one.times >= number)
            return [*chosen, (last.name, number)]
        chosen.append((fit.name, fit.times))
        number -= fit.times
    return chosen
