"""Simulate arrivals on a cluster under a policy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from muster_core.models import DEFAULT_QUEUE, Job, Node, QueueSpec, Role, Template
from muster_core.simulation.measures import Measures, measures_of
from muster_core.simulation.plans import PLANS, queues_under
from muster_core.simulation.settings import WorldSettings
from muster_core.simulation.story import JobStory, Moment
from muster_core.simulation.traces import GPU_MODEL_LABEL, TraceJob
from muster_core.simulation.work import Work
from muster_core.simulation.world import World


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """A job that arrives ``at_us`` (µs since the start) with ``work`` to do; its id defaults to its name."""

    at_us: int
    job: Job
    work: Work
    submitter: str = ""
    job_id: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result under ``policy``: the measures, every job's history, the pool over time, and the number of events.

    ``gpus`` are the cluster's, in milli-GPU.
    """

    policy: str
    measures: Measures
    stories: tuple[JobStory, ...]
    moments: tuple[Moment, ...]
    gpus: int
    events: int


def simulate(
    arrivals: Iterable[Arrival],
    nodes: Sequence[Node],
    *,
    policy: str,
    queues: Iterable[QueueSpec] = (),
    settings: WorldSettings | None = None,
    until_us: int | None = None,
) -> Result:
    """Run until everything has ended, or up to ``until_us`` (µs since the start).

    ``policy`` is one of ``PLANS`` and overrides the order and elastic policy of valid ``queues``. The journal is kept
    only if ``settings`` requests it. Raises KeyError for an unknown policy.
    """
    plan = PLANS[policy]
    base = settings or WorldSettings(journal=False)
    specs = queues_under(plan, queues)
    world = World(nodes=nodes, queues=specs, settings=msgspec.structs.replace(base, policy=plan.elasticity))
    known = {spec.name for spec in specs}
    for one in arrivals:
        job = one.job if one.job.queue in known else msgspec.structs.replace(one.job, queue=DEFAULT_QUEUE)
        world.submit(job, at=one.at_us, work=one.work, submitter=one.submitter, job_id=one.job_id)
    world.run(until=until_us)
    stories = tuple(world.chronicle.jobs.values())
    moments = tuple(world.chronicle.moments)
    gpus = sum(node.allocatable.gpu for node in nodes)
    return Result(
        policy=policy,
        measures=measures_of(stories, moments, gpus=gpus),
        stories=stories,
        moments=moments,
        gpus=gpus,
        events=world.events_said,
    )


def arrivals_of(jobs: Iterable[TraceJob]) -> list[Arrival]:
    """Return the arrivals of a trace."""
    return [Arrival(at_us=job.submit_us, job=_job_of(job), work=job.work, submitter=job.user) for job in jobs]


def _job_of(job: TraceJob) -> Job:
    affinity: dict[str, object] = {}
    if job.gpu_models:
        expression = {"key": GPU_MODEL_LABEL, "operator": "In", "values": list(job.gpu_models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    template = Template(requests=job.worker, node_affinity=affinity)
    role = Role(name="worker", replicas=job.replicas, min=job.min, max=job.max, template=template)
    return Job(name=job.name, namespace=job.namespace, queue=job.queue, priority=job.priority, roles=(role,))
