"""A simulation of two nodes, 16 CPUs and 4 GPUs each, that checks invariants after every event."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from muster_core.models import Job, Node, QueueSpec, Resources, RestartPolicy, Role, Template
from muster_core.simulation import Simulation, SimulationSettings

MakeSimulation = Callable[..., Simulation]
MakeJob = Callable[..., Job]


def _node(name: str, *, cpu: int = 16, gpu: int = 4) -> Node:
    return Node(name=name, allocatable=Resources(cpu=cpu * 1000, gpu=gpu * 1000))


@pytest.fixture
def node() -> Callable[..., Node]:
    return _node


@pytest.fixture
def simulation() -> MakeSimulation:
    def make(*nodes: Node, queues: tuple[QueueSpec, ...] = (), **settings: object) -> Simulation:
        chosen = msgspec.structs.replace(SimulationSettings(checks=True), **settings)
        return Simulation(nodes=nodes or (_node("n1"), _node("n2")), queues=queues, settings=chosen)

    return make


@pytest.fixture
def job() -> MakeJob:
    def make(
        name: str,
        workers: int,
        *,
        minimum: int | None = None,
        maximum: int | None = None,
        servers: int = 0,
        restart_policy: RestartPolicy = RestartPolicy.NEVER,
        **rest: object,
    ) -> Job:
        worker = Role(
            name="worker",
            replicas=workers,
            min=workers if minimum is None else minimum,
            max=maximum or workers,
            template=Template(requests=Resources(cpu=1000, gpu=1000)),
            restart_policy=restart_policy,
        )
        ps = Role(
            name="ps",
            replicas=servers,
            min=servers,
            max=servers,
            template=Template(requests=Resources(cpu=1000)),
        )
        roles = (ps, worker) if servers else (worker,)
        return msgspec.structs.replace(Job(name=name, roles=roles), **rest)

    return make
