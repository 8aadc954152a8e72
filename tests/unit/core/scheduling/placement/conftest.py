"""Builders for the scenarios of placement: small nodes, and gangs of a parameter server and workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec
import pytest

from muster_core.models import Job, Node, PlacementPolicy, Resources, Role, Template
from muster_core.scheduling.placement import Placement, Shortfall, Snapshot, gang_of, place

CPU = Resources(cpu=1000)
WORKER = Resources(cpu=1000, gpu=1000)
ANYWHERE = PlacementPolicy()


class Scene:
    """Nodes and the jobs that are tried on them."""

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
        floor: int = 1,
        most: int | None = None,
        worker: Resources = WORKER,
        ps: Resources | None = CPU,
        servers: int = 1,
        placement: PlacementPolicy = ANYWHERE,
        **template: object,
    ) -> Job:
        """A job of parameter servers (none where ``ps`` is None) and workers; ``template`` replaces fields of the workers' template."""
        made = msgspec.structs.replace(Template(requests=worker), **template)
        roles = [Role(name="worker", replicas=workers, min=floor, max=most or workers, template=made)]
        if ps is not None:
            roles.insert(
                0, Role(name="ps", replicas=servers, min=servers, max=servers, template=Template(requests=ps))
            )
        return Job(name="train", roles=tuple(roles), placement=placement)

    def where(self, job: Job, snapshot: Snapshot) -> Mapping[str, Mapping[str, int]] | Shortfall:
        """The replicas of each role by node, or the shortfall."""
        found = place(gang_of(job), snapshot)
        return self.by_node(found) if isinstance(found, Placement) else found

    def by_node(self, placement: Placement) -> Mapping[str, Mapping[str, int]]:
        """The replicas of each role by node."""
        nodes: dict[str, Counter[str]] = {}
        for one in placement.replicas:
            nodes.setdefault(one.node, Counter())[one.role] += 1
        return {node: dict(roles) for node, roles in nodes.items()}


@pytest.fixture
def scene() -> Scene:
    """Builders of nodes and jobs."""
    return Scene()
