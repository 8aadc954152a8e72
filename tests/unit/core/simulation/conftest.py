"""A world of two nodes, 16 CPUs and 4 GPUs each, that looks at its invariants after every event."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from muster_core.models import Job, Node, QueueSpec, Resources, RestartPolicy, Role, Template
from muster_core.simulation import World, WorldSettings

MakeWorld = Callable[..., World]
MakeJob = Callable[..., Job]


def _node(name: str, *, cpu: int = 16, gpu: int = 4) -> Node:
    return Node(name=name, allocatable=Resources(cpu=cpu * 1000, gpu=gpu * 1000))


@pytest.fixture
def node() -> Callable[..., Node]:
    return _node


@pytest.fixture
def world() -> MakeWorld:
    def make(*nodes: Node, queues: tuple[QueueSpec, ...] = (), **settings: object) -> World:
        chosen = msgspec.structs.replace(WorldSettings(checks=True), **settings)
        return World(nodes=nodes or (_node("n1"), _node("n2")), queues=queues, settings=chosen)

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
        worker = Role(
            name="worker",
            replicas=workers,
            min=workers if floor is None else floor,
            max=most or workers,
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
