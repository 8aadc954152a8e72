"""Builders for the scenarios of placement: small nodes, and gangs of a parameter server and workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

from muster_core.models import Job, Node, PlacementPolicy, Resources, Role, Template
from muster_core.scheduling.placement import (
    Allocation,
    Placement,
    Shortfall,
    Snapshot,
    demand_of,
    gang_of,
    place,
)

CPU = Resources(cpu=1000)
WORKER = Resources(cpu=1000, gpu=1000)
ANYWHERE = PlacementPolicy()


class Scene:
    """Builds nodes and jobs, and places jobs."""

    def node(self, name: str, *, cpu: int = 16, gpu: int = 4, pods: int = 110, **rest: object) -> Node:
        """A node of ``cpu`` CPUs and ``gpu`` GPUs; ``rest`` replaces other fields."""
        node = Node(name=name, allocatable=Resources(cpu=cpu * 1000, gpu=gpu * 1000), pods=pods)
        return msgspec.structs.replace(node, **rest)

    def two(self) -> Snapshot:
        """n1 and n2, 16 CPU and 4 GPU each."""
        return Snapshot([self.node("n1"), self.node("n2")])

    def job(
        self,
        workers: int,
        *,
        minimum: int = 1,
        most: int | None = None,
        worker: Resources = WORKER,
        ps: Resources | None = CPU,
        servers: int = 1,
        placement: PlacementPolicy = ANYWHERE,
        **template: object,
    ) -> Job:
        """A job of workers, and of parameter servers unless ``ps`` is None; ``template`` replaces fields of the workers' template."""
        made = msgspec.structs.replace(Template(requests=worker), **template)
        roles = [Role(name="worker", replicas=workers, min=minimum, max=most or workers, template=made)]
        if ps is not None:
            roles.insert(
                0, Role(name="ps", replicas=servers, min=servers, max=servers, template=Template(requests=ps))
            )
        return Job(name="train", roles=tuple(roles), placement=placement)

    def place(self, job: Job, snapshot: Snapshot) -> Placement:
        """The placement of a job that fits."""
        found = place(gang_of(job), snapshot)
        assert isinstance(found, Placement)
        return found

    def shortfall(self, job: Job, snapshot: Snapshot) -> Shortfall:
        """The shortfall of a job that does not fit."""
        found = place(gang_of(job), snapshot)
        assert isinstance(found, Shortfall)
        return found

    def nodes(self, job: Job, snapshot: Snapshot) -> Mapping[str, Mapping[str, int]]:
        """The number of replicas of each role by node, of a job that fits."""
        nodes: dict[str, Counter[str]] = {}
        for one in self.place(job, snapshot).replicas:
            nodes.setdefault(one.node, Counter())[one.role] += 1
        return {node: dict(roles) for node, roles in nodes.items()}

    def gpus(self, job: Job, snapshot: Snapshot) -> list[tuple[int, ...]]:
        """The GPUs of each replica of a job that fits."""
        return [one.gpus for one in self.place(job, snapshot).replicas]

    def allocate(
        self,
        snapshot: Snapshot,
        node: str,
        requests: Resources,
        *gpus: int,
        job: str = "other",
        index: int = 0,
    ) -> None:
        """Allocate a replica of another job."""
        snapshot.allocate((job, 1, "worker", index), Allocation(node, demand_of(requests), gpus))


@pytest.fixture
def scene() -> Scene:
    """Builders of nodes and jobs."""
    return Scene()
