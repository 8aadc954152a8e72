"""Simulations of two nodes, 16 CPUs and 4 GPUs each, that check invariants after every event."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from muster_core.models import Job, Node, QueueSpec, Resources, RestartPolicy
from muster_core.simulation import Simulation, SimulationSettings
from muster_testing.pool import ScenarioPool

MakeSimulation = Callable[..., Simulation]
MakeJob = Callable[..., Job]


def _node(name: str) -> Node:
    return Node(name=name, allocatable=Resources(cpu=16_000, gpu=4_000))


@pytest.fixture
def node() -> Callable[[str], Node]:
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
        floor: int | None = None,
        most: int | None = None,
        servers: int = 0,
        restart_policy: RestartPolicy = RestartPolicy.NEVER,
        **rest: object,
    ) -> Job:
        made = ScenarioPool().job(
            name, workers, floor=floor or workers, most=most, servers=servers, restart_policy=restart_policy
        )
        return msgspec.structs.replace(made, **rest)

    return make
