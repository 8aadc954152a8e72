"""GPUs of which more was taken than there is, and GPUs that others use: whoever looks, and whenever, sees the same room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from muster_core.models import Job, Resources
from muster_core.scheduling.placement import Allocation, Demand, Placement, Snapshot, gang_of, place

if TYPE_CHECKING:
    from conftest import Scene

GIB = 2**30


def share(milli: int, memory: int = 0) -> Demand:
    return Demand(amounts=(), gpu_share=milli, gpu_memory=memory)


def gpus(job: Job, snapshot: Snapshot) -> list[tuple[int, ...]]:
    """Where the replicas of a job that fits would stand."""
    found = place(gang_of(job), snapshot)
    assert isinstance(found, Placement)
    return [one.gpus for one in found.replicas]


@pytest.mark.parametrize("memory", [0, GIB])
def test_an_overused_gpu_takes_no_share(scene: Scene, memory: int) -> None:
    node = scene.node("n1", gpu=2, gpu_memory=4 * GIB)
    snapshot = Snapshot([node])
    for number in range(2):
        snapshot.allocate((f"j{number}", 1, "worker", 0), Allocation("n1", share(600), (0,)))
    job = scene.job(1, ps=None, worker=Resources(cpu=1000, gpu=300, gpu_memory=memory))
    assert gpus(job, snapshot) == [(1,)]


def test_a_gpu_whose_memory_is_overused_takes_no_share(scene: Scene) -> None:
    node = scene.node("n1", gpu=2, gpu_memory=4 * GIB)
    snapshot = Snapshot([node])
    snapshot.allocate(("a", 1, "worker", 0), Allocation("n1", share(300, 3 * GIB), (0,)))
    snapshot.put_node(msgspec.structs.replace(node, gpu_memory=2 * GIB))
    job = scene.job(1, ps=None, worker=Resources(cpu=1000, gpu=300, gpu_memory=GIB))
    assert gpus(job, snapshot) == [(1,)]


def test_what_others_use_is_the_same_whether_it_was_told_before_or_after(scene: Scene) -> None:
    """Nobody says which GPUs others use; it is never one that a replica holds."""
    node = scene.node("n1", gpu=4, foreign=Resources(gpu=1000))
    first, last = Snapshot([node]), Snapshot([scene.node("n1", gpu=4)])
    for snapshot in (first, last):
        snapshot.allocate(("a", 1, "worker", 0), Allocation("n1", Demand(amounts=(), gpus=1), (3,)))
    last.put_node(node)
    assert first.free_capacity("n1") == last.free_capacity("n1")
    assert first.free_capacity("n1").gpus == (1000, 1000, 0, 0)
    assert first.overcommitted() == []
