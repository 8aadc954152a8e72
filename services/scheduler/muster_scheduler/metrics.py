"""Metrics of the scheduler: decisions and cycles of its terms, and the pool and its queues while it leads.

Amounts are integers everywhere else; they become base units here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
from prometheus_client import Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from muster_core.autoscaling import PROPOSAL_CODES
from muster_core.models import JobRecord, Resources
from muster_core.scheduling import (
    EVICTION_CODES,
    RESIZE_CODES,
    WAIT_CODES,
    Evict,
    Instruction,
    Place,
    Resize,
    Wait,
)
from muster_scheduler.ports import DecisionObserver
from muster_scheduler.queue_queries import LeaderState
from muster_service.metrics import Metrics

_US = 1_000_000
_MILLI = 1000
_WAITS_S = (0.01, 0.05, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400)
_CYCLES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class SchedulingMetrics:
    """Counters and histograms of decisions and cycles, of all terms of this instance."""

    def __init__(self, metrics: Metrics, pool: str) -> None:
        self._pool = pool
        self._placed = metrics.counter("muster_gangs_placed", "gangs placed", ("pool", "queue"))
        self._waits = metrics.histogram(
            "muster_queue_wait_seconds",
            "from the start of the wait to the placement",
            ("pool", "queue"),
            buckets=_WAITS_S,
        )
        self._of_queue: dict[str, tuple[Counter, Histogram]] = {}
        labels = ("pool", "reason")
        self._resized = _by_reason(
            metrics.counter("muster_gangs_resized", "resizes, by reason", labels),
            pool,
            (*RESIZE_CODES, *PROPOSAL_CODES),
        )
        self._evicted = _by_reason(
            metrics.counter("muster_gangs_evicted", "evicted gangs, by reason", labels), pool, EVICTION_CODES
        )
        self._waiting = _by_reason(
            metrics.counter("muster_gangs_waiting_reports", "reported reasons of waiting jobs", labels),
            pool,
            WAIT_CODES,
        )
        self._cycles = metrics.histogram(
            "muster_scheduling_cycle_duration_seconds",
            "time from the start of a scheduling cycle to its decisions",
            ("pool",),
            buckets=_CYCLES_S,
        ).labels(pool)
        self._commits = metrics.histogram(
            "muster_scheduling_commit_duration_seconds",
            "time from the decisions of a cycle until they are stored and read back",
            ("pool",),
            buckets=_CYCLES_S,
        ).labels(pool)

    def observe_cycle(self, duration_s: float) -> None:
        """Take note of a cycle, and of how long its decisions took."""
        self._cycles.observe(duration_s)

    def observe_commit(self, duration_s: float) -> None:
        """Take note of how long it took to commit the decisions of a cycle."""
        self._commits.observe(duration_s)

    def expect_queue(self, queue: str) -> tuple[Counter, Histogram]:
        """Return the metrics of a queue, which exist from now on."""
        if queue not in self._of_queue:
            self._of_queue[queue] = (
                self._placed.labels(self._pool, queue),
                self._waits.labels(self._pool, queue),
            )
        return self._of_queue[queue]

    def count(self, record: JobRecord, instruction: Instruction, queue: str, started_ns: int) -> None:
        """Count a decision about a job of ``queue``; its cycle began at ``started_ns``."""
        match instruction:
            case Place():
                placed, waits = self.expect_queue(queue)
                placed.inc()
                waits.observe(max(started_ns / 1e9 - record.waiting_since / _US, 0))
            case Resize(reason=reason):
                self._resized(reason.code).inc()
            case Evict(reason=reason):
                self._evicted(reason.code).inc()
            case Wait(reason=reason):
                self._waiting(reason.code).inc()


def _by_reason(counter: Counter, pool: str, codes: tuple[str, ...]) -> Callable[[str], Counter]:
    """Return the counter of a reason; those of ``codes`` exist from now on."""
    known = {code: counter.labels(pool, code) for code in codes}
    return lambda code: known.get(code) or counter.labels(pool, code)


class DecisionMetrics:
    """Counts decisions and passes them to another observer; ``queue_of`` returns the effective queue of a job."""

    def __init__(
        self, observer: DecisionObserver, metrics: SchedulingMetrics, queue_of: Callable[[JobRecord], str]
    ) -> None:
        self._observer = observer
        self._metrics = metrics
        self._queue_of = queue_of

    def observe_decision(self, record: JobRecord, instruction: Instruction, started_ns: int) -> None:
        """See ``DecisionObserver``."""
        self._observer.observe_decision(record, instruction, started_ns)
        self._metrics.count(record, instruction, self._queue_of(record), started_ns)


class LeaderMetrics(Collector):
    """Rejected proposals of the term, totals of the pool, and gauges of every queue including its children.

    They are computed when they are read. A standby has none.
    """

    def __init__(
        self,
        leader_state: Callable[[], LeaderState | None],
        clock: Callable[[], int],
        *,
        pool: str,
    ) -> None:
        self._leader_state = leader_state
        self._clock = clock
        self._pool = pool

    def describe(self) -> Iterator[Metric]:
        """Yield the metrics without values."""
        yield from _Families().all()

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        families, leader_state = _Families(), self._leader_state()
        if leader_state is not None:
            self._add(families, leader_state)
        yield from families.all()

    def _add(self, families: _Families, leader_state: LeaderState) -> None:
        pool, term = self._pool, leader_state.term
        families.rejected.add_metric([pool], term.state.rejected_proposals)
        if (totals := term.totals) is not None:
            families.pool_waiting.add_metric([pool], totals.waiting)
            families.free.add([pool], totals.free)
            families.allocatable.add([pool], totals.allocatable)
        for report in term.queue_report():
            queue = report.spec.name
            oldest = max(self._clock() - report.oldest_wait_at, 0) / _US if report.oldest_wait_at else 0
            families.waiting.add_metric([pool, queue], report.waiting)
            families.running.add_metric([pool, queue], report.running)
            families.oldest.add_metric([pool, queue], oldest)
            families.share.add_metric([pool, queue], report.share / _MILLI)
            families.fair_share.add_metric([pool, queue], report.fair_share / _MILLI)
            families.allocated.add([pool, queue], report.allocated)


class _Unit(msgspec.Struct, frozen=True):
    """How a resource is exported: the end of the family's name, and how many of its integers make one unit."""

    suffix: str
    per_unit: int = 1


_UNITS: Mapping[str, _Unit] = {
    "cpu": _Unit("cpu_cores", _MILLI),
    "memory": _Unit("memory_bytes"),
    "gpu": _Unit("gpus", _MILLI),
    "ephemeral_storage": _Unit("ephemeral_storage_bytes"),
}
_PER_GPU = "gpu_memory"
"""The memory of each shared GPU is no amount that can be added up."""


class _ResourceFamilies:
    """One family for each unit, and one for all extended resources, whose units are their own."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self._gauges = {
            resource: GaugeMetricFamily(
                f"{name}_{unit.suffix}", f"{text}: {unit.suffix.replace('_', ' ')}", labels=labels
            )
            for resource, unit in _UNITS.items()
        }
        self._extended = GaugeMetricFamily(
            f"{name}_extended_resources",
            f"{text}: extended resources, in units",
            labels=(*labels, "resource"),
        )

    def add(self, labels: list[str], amounts: Resources) -> None:
        """Add the amounts of a pool or a queue."""
        for resource, amount in amounts.amounts().items():
            if (gauge := self._gauges.get(resource)) is not None:
                gauge.add_metric(labels, amount / _UNITS[resource].per_unit)
            elif resource != _PER_GPU:
                self._extended.add_metric([*labels, resource], amount)

    def all(self) -> Iterator[Metric]:
        yield from (*self._gauges.values(), self._extended)


class _Families:
    """The families of a leader, without values."""

    def __init__(self) -> None:
        pool, queue = ("pool",), ("pool", "queue")
        self.rejected = CounterMetricFamily(
            "muster_proposals_rejected",
            "rejected proposals to resize a job: stale, out of bounds, superseded, or without capacity",
            labels=pool,
        )
        self.pool_waiting = GaugeMetricFamily(
            "muster_pool_jobs_waiting", "waiting jobs of the pool", labels=pool
        )
        self.free = _ResourceFamilies("muster_pool_free", "free capacity of the pool", pool)
        self.allocatable = _ResourceFamilies(
            "muster_pool_allocatable", "allocatable capacity of the pool", pool
        )
        self.waiting = _gauge("jobs", "waiting jobs of the queue and its children")
        self.running = _gauge("jobs_running", "jobs of the queue with allocations")
        self.oldest = _gauge("oldest_seconds", "wait (s) of the longest-waiting job")
        self.share = _gauge("share_ratio", "dominant share of the queue")
        self.fair_share = _gauge("fair_share_ratio", "fair share of the queue by weight")
        self.allocated = _ResourceFamilies("muster_queue_allocated", "allocations of the queue's jobs", queue)

    def all(self) -> Iterator[Metric]:
        yield from (self.rejected, self.pool_waiting, *self.free.all(), *self.allocatable.all())
        yield from (self.waiting, self.running, self.oldest, self.share, self.fair_share)
        yield from self.allocated.all()


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"muster_queue_{name}", text, labels=("pool", "queue"))
