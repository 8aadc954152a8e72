"""Hypothesis strategies for queues, nodes and jobs that compete; small numbers make conflicts frequent."""

from __future__ import annotations

from hypothesis import strategies as st

from muster_core.models import (
    Job,
    Node,
    QueuePolicy,
    QueueSpec,
    ResourceLimits,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    Taint,
    Template,
    Toleration,
)
from muster_core.scheduling import validate_queues

DRAINED = Taint(key="muster.dev/drained", effect="NoExecute")
"""A taint that some jobs tolerate."""

_guarantees = st.builds(Resources, cpu=st.sampled_from([0, 0, 6000]), gpu=st.sampled_from([0, 2000, 4000]))
_limits = st.builds(
    ResourceLimits,
    cpu=st.sampled_from([None, None, None, 6000]),
    gpu=st.sampled_from([None, None, None, 2000, 6000]),
)
_trees = st.sampled_from([("a", "b"), ("a", "b"), ("a", "b", "c"), ("default", "a"), ("c", "b"), ()])
_whole = st.builds(
    Resources, cpu=st.sampled_from([500, 1000, 3000]), gpu=st.sampled_from([0, 1000, 1000, 1000, 2000])
)
_shares = st.builds(
    Resources,
    cpu=st.sampled_from([500, 1000]),
    gpu=st.sampled_from([300, 500]),
    gpu_memory=st.sampled_from([0, 0, 4, 8]),
)
_requests = st.one_of(_whole, _whole, _shares)
_restarts = st.sampled_from([RestartPolicy.NEVER, RestartPolicy.NEVER, RestartPolicy.ON_FAILURE])

foreign = st.builds(Resources, cpu=st.sampled_from([0, 500, 4000]), gpu=st.sampled_from([0, 0, 1000, 2000]))
"""Usage of a node by foreign pods."""


@st.composite
def queues(draw: st.DrawFn) -> tuple[QueueSpec, ...]:
    """A valid set of queues."""
    specs: list[QueueSpec] = []
    for name in draw(_trees):
        spec = QueueSpec(
            name=name,
            parent="" if name == "default" else draw(st.sampled_from(["", "", "a"])),
            guaranteed=draw(_guarantees),
            limit=draw(_limits),
            weight=draw(st.integers(1, 3)),
            policy=draw(st.sampled_from(QueuePolicy)),
            starvation_after_s=draw(st.sampled_from([0, 5, 30])),
            preempts_within=draw(st.booleans()),
            reclaims=draw(st.booleans()),
        )
        if not validate_queues([*specs, spec]):
            specs.append(spec)
    return tuple(specs)


@st.composite
def rivals(draw: st.DrawFn) -> Job:
    """An elastic job with workers, sometimes a parameter server, and a queue and a priority; most have no name yet."""
    floor = draw(st.integers(1, 3))
    replicas = draw(st.integers(floor, 4))
    restart_policy = draw(_restarts)
    tolerations = (Toleration(operator="Exists"),) if draw(st.integers(0, 4)) == 0 else ()
    worker = Role(
        name="worker",
        min=floor,
        replicas=replicas,
        max=replicas + draw(st.integers(0, 2)),
        template=Template(requests=draw(_requests), tolerations=tolerations),
        restart_policy=restart_policy,
    )
    servers = Template(requests=Resources(cpu=500), tolerations=tolerations)
    ps = Role(name="ps", min=1, replicas=1, max=1, template=servers, restart_policy=restart_policy)
    return Job(
        name=draw(st.sampled_from(["", "", "", "twin"])),
        roles=(ps, worker) if draw(st.booleans()) else (worker,),
        queue=draw(st.sampled_from(["", "a", "a", "b", "b", "c"])),
        priority=draw(st.integers(0, 2)),
        preemptible=draw(st.sampled_from([True, True, True, False])),
        min_available=draw(st.none() | st.integers(1, 4)),
        run=RunPolicy(
            active_deadline_s=draw(st.sampled_from([None, None, 20, 100])),
            backoff_limit=draw(st.integers(0, 2)),
            suspend=draw(st.integers(0, 9)) == 0,
        ),
    )


def small_node(name: str, gpus: int) -> Node:
    """Return a node with 8 CPU, ``gpus`` GPUs of 16 bytes, and at most 12 replicas."""
    return Node(name=name, allocatable=Resources(cpu=8000, gpu=gpus * 1000), pods=12, gpu_memory=16)
