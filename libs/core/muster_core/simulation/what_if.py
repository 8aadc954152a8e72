"""Simulate arrivals on a cluster under a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from muster_core.models import DEFAULT_QUEUE, Job, Node, QueueElastic, QueuePolicy, QueueSpec, Role, Template
from muster_core.simulation.report import JobTimeline, Measures, PoolSample, measures_of
from muster_core.simulation.settings import SimulationSettings
from muster_core.simulation.simulation import Simulation
from muster_core.simulation.traces import GPU_MODEL_LABEL, TraceJob
from muster_core.simulation.workload import Work


class SimulatedPolicy(msgspec.Struct, frozen=True):
    """A policy of the simulator: the order within queues (None: the queues' own), and the elastic policy."""

    name: str
    order: QueuePolicy | None
    elastic: str
    description: str


POLICIES: Mapping[str, SimulatedPolicy] = {
    name: SimulatedPolicy(name, order, elastic, description)
    for name, order, elastic, description in (
        ("fifo", QueuePolicy.FIFO_SKIP, "none", "priority and arrival, with skipping; fixed sizes"),
        (
            "strict_fifo",
            QueuePolicy.STRICT_FIFO,
            "none",
            "priority and arrival, without skipping; fixed sizes",
        ),
        ("drf", QueuePolicy.DRF, "none", "lowest dominant share of a submitter; fixed sizes"),
        ("dragon", QueuePolicy.FIFO_SKIP, "dragon", "as fifo; jobs shrink for starved ones, the oldest grow"),
        ("marginal_gain", QueuePolicy.FIFO_SKIP, "marginal_gain", "as dragon, but the largest gain first"),
        ("max_min", QueuePolicy.FIFO_SKIP, "max_min", "as dragon, but towards equal shares"),
        ("current", None, "marginal_gain", "as the queues define"),
    )
}
"""Every policy by name."""


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A job that arrives ``at_us`` (µs since the start) with ``work`` to do; its id defaults to its name."""

    at_us: int
    job: Job
    work: Work
    submitter: str = ""
    job_id: str = ""


class SimulationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result under ``policy``: measures, the timelines of all jobs, the pool over time, and the number of events.

    ``gpus`` are the cluster's, in milli-GPU.
    """

    policy: str
    measures: Measures
    timelines: tuple[JobTimeline, ...]
    samples: tuple[PoolSample, ...]
    gpus: int
    events: int


def simulate(
    arrivals: Iterable[Arrival],
    nodes: Sequence[Node],
    *,
    policy: str,
    queues: Iterable[QueueSpec] = (),
    settings: SimulationSettings | None = None,
    until_us: int | None = None,
) -> SimulationResult:
    """Run a simulation until every job has ended.

    Args:
        arrivals: The jobs.
        nodes: The cluster.
        policy: One of ``POLICIES``; it overrides the order and the elastic policy of ``queues``.
        queues: Valid queues; by default the default queue. Jobs of other queues go to the default queue.
        settings: The behaviour of the runtime; by default no journal is kept.
        until_us: When to stop earlier, in µs since the start.

    Raises:
        KeyError: The policy is unknown.
    """
    chosen = POLICIES[policy]
    base = settings or SimulationSettings(journal=False)
    specs = queues_under(chosen, queues)
    simulation = Simulation(
        nodes=nodes, queues=specs, settings=msgspec.structs.replace(base, policy=chosen.elastic)
    )
    known = {spec.name for spec in specs}
    for one in arrivals:
        job = one.job if one.job.queue in known else msgspec.structs.replace(one.job, queue=DEFAULT_QUEUE)
        simulation.submit(job, at=one.at_us, work=one.work, submitter=one.submitter, job_id=one.job_id)
    simulation.run(until=until_us)
    timelines = tuple(simulation.recorder.jobs.values())
    samples = tuple(simulation.recorder.samples)
    gpus = sum(node.allocatable.gpu for node in nodes)
    return SimulationResult(
        policy=policy,
        measures=measures_of(timelines, samples, gpus=gpus),
        timelines=timelines,
        samples=samples,
        gpus=gpus,
        events=simulation.event_count,
    )


def queues_under(policy: SimulatedPolicy, queues: Iterable[QueueSpec]) -> tuple[QueueSpec, ...]:
    """Return ``queues`` under ``policy``; the default queue if there are none."""
    specs = tuple(queues) or (QueueSpec(name=DEFAULT_QUEUE),)
    if policy.order is None:
        return specs
    return tuple(
        msgspec.structs.replace(
            spec,
            policy=policy.order,
            elastic=msgspec.structs.replace(spec.elastic or QueueElastic(), policy=policy.elastic),
        )
        for spec in specs
    )


def arrivals_of(jobs: Iterable[TraceJob]) -> list[Arrival]:
    """Return the arrivals of a trace."""
    return [Arrival(at_us=one.submit_us, job=_job_of(one), work=one.work, submitter=one.user) for one in jobs]


def _job_of(job: TraceJob) -> Job:
    affinity: dict[str, object] = {}
    if job.gpu_models:
        expression = {"key": GPU_MODEL_LABEL, "operator": "In", "values": list(job.gpu_models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    template = Template(requests=job.worker, node_affinity=affinity)
    role = Role(name="worker", replicas=job.replicas, min=job.min, max=job.max, template=template)
    return Job(name=job.name, namespace=job.namespace, queue=job.queue, priority=job.priority, roles=(role,))
