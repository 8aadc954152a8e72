"""The pool of the answers: n1 and n2 with 16 CPUs and 4 GPUs each, and jobs of one ps of 1 CPU and workers of 1 CPU and 1 GPU."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from muster_core.models import Job, Node, ReplicaState, Resources, Role, Template
from muster_testing.pool import VirtualPool

CPU = Resources(cpu=1000)
WORKER = Resources(cpu=1000, gpu=1000)


class Scenario(VirtualPool):
    """A pool that is told of nodes and jobs in the words of the answers: whole CPUs and GPUs, W workers, a minimum."""

    def offer(self, name: str, *, cpu: int = 16, gpu: int = 4, **rest: object) -> None:
        """A node has so many CPUs and GPUs; ``rest`` replaces other fields of it."""
        node = Node(name=name, allocatable=Resources(cpu=cpu * 1000, gpu=gpu * 1000))
        self.node(msgspec.structs.replace(node, **rest))

    def job(
        self,
        name: str,
        workers: int,
        *,
        floor: int = 1,
        most: int = 0,
        worker: Resources = WORKER,
        servers: int = 1,
        server: Resources = CPU,
        **rest: object,
    ) -> Job:
        """``servers`` parameter servers and W ``workers``, ``floor`` to ``most`` (W unless said); ``rest`` replaces fields of the job."""
        roles = [
            Role(
                name="worker",
                replicas=workers,
                min=floor,
                max=most or workers,
                template=Template(requests=worker),
            )
        ]
        if servers:
            roles.insert(
                0,
                Role(
                    name="ps",
                    replicas=servers,
                    min=servers,
                    max=servers,
                    template=Template(requests=server),
                ),
            )
        return msgspec.structs.replace(Job(name=name, roles=tuple(roles)), **rest)

    def start(self, job: Job) -> Mapping[str, Mapping[str, int]]:
        """A job arrives and runs at once; its replicas by node."""
        self.submit(job)
        assert self.placed() == [job.name]
        self.launch()
        return self.where(job.name)

    def leave(self, job_id: str, *keys: tuple[str, int]) -> None:
        """Those replicas, by role and index, have gone."""
        leavers = [one for one in self.record(job_id).replicas if one.key in keys and not one.ended]
        self.change(job_id, ReplicaState.EXITED, leavers, exit_code=0)


@pytest.fixture
def empty() -> Scenario:
    """A pool without nodes."""
    return Scenario()


@pytest.fixture
def pool(empty: Scenario) -> Scenario:
    """n1 and n2, 16 CPUs and 4 GPUs free on each."""
    empty.offer("n1")
    empty.offer("n2")
    return empty
