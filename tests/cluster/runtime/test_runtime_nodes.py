"""A cluster's nodes, as a runtime on a real API server tells them; and what becomes of replicas whose node leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from runtime_room import PATIENCE_S, KubeRoom

from muster_core.models import Node, ReplicaState, Resources, Taint
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_testing.cluster import Cluster
from muster_testing.cluster.views import Taint as NodeTaint


async def until_node(
    runtime: KubernetesRuntime, name: str, holds: Callable[[Node | None], bool]
) -> Node | None:
    """The node as soon as it ``holds``; None for one that is not there."""
    async with asyncio.timeout(PATIENCE_S):
        async for _ in runtime.node_changes():
            seen = next((node for node in runtime.nodes() if node.name == name), None)
            if holds(seen):
                return seen
    raise AssertionError("the changes of nodes ended")


async def test_a_node_is_told_with_what_it_offers_and_whom_it_admits(
    room: KubeRoom, cluster: Cluster, namespace: str
) -> None:
    taint = NodeTaint(key="dedicated", value="train", effect="NoSchedule")
    (name,) = await cluster.add_kwok_nodes(
        1, cpu="8", memory="32Gi", gpus=4, labels={"zone": "a"}, taints=[taint], prefix=namespace
    )
    async with room.runtime() as runtime:
        node = await until_node(runtime, name, lambda node: node is not None and node.ready)
    await cluster.remove_nodes([name])

    assert node is not None
    assert node.allocatable == Resources(cpu=8000, memory=32 * 2**30, gpu=4000)
    assert (node.foreign, node.pods, node.unschedulable) == (Resources(), 110, False)
    assert node.labels["zone"] == "a"
    assert Taint(key="dedicated", value="train", effect="NoSchedule") in node.taints


async def test_what_others_use_is_counted_while_they_are_there(room: KubeRoom, node: str) -> None:
    resources = {"requests": {"cpu": "1500m", "memory": "1Gi"}}
    container = {"name": "c", "image": "localhost/none:1", "resources": resources}
    theirs = {"metadata": {"name": "theirs"}, "spec": {"nodeName": node, "containers": [container]}}
    async with room.cluster.connect() as api, room.runtime() as runtime:
        # What is of this pool is the scheduler's to count.
        await room.launch(runtime, room.job(), room.replica(), node=node)
        await api.create(f"/api/v1/namespaces/{room.namespace}/pods", theirs)
        used = await until_node(runtime, node, lambda seen: seen is not None and seen.foreign.cpu > 0)
        assert used is not None
        assert (used.foreign, used.pods) == (Resources(cpu=1500, memory=2**30), 109)
        await room.delete_pod("theirs")
        await until_node(runtime, node, lambda seen: seen is not None and seen.foreign == Resources())


async def test_a_cordoned_node_is_told(room: KubeRoom, node: str) -> None:
    async with room.cluster.connect() as api, room.runtime() as runtime:
        await api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        await until_node(runtime, node, lambda seen: seen is not None and seen.unschedulable)


async def test_a_replica_whose_node_is_scrapped_is_placed_elsewhere(
    room: KubeRoom, cluster: Cluster, namespace: str
) -> None:
    (name,) = await cluster.add_kwok_nodes(1, cpu="8", memory="32Gi", prefix=f"{namespace}-x")
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=name)
        await room.running(runtime, room.replica())
        await cluster.remove_nodes([name])
        # The control plane's garbage collector would take a minute; an administrator is quicker.
        await room.delete_pod("mnist-worker-0", gracePeriodSeconds="1")
        end = await room.ended(runtime, room.replica())
        assert end.state is ReplicaState.REJECTED

        runtime.confirm_recorded(room.job_id, [room.replica()])
        await room.until_gone("pods")


async def test_a_drain_is_told_by_its_name(room: KubeRoom, node: str) -> None:
    async with room.cluster.connect() as api, room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        await room.running(runtime, room.replica())
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "mnist-worker-0"}}
        # The answer is no object, but a status.
        with suppress(msgspec.ValidationError):
            await api.create(f"/api/v1/namespaces/{room.namespace}/pods/mnist-worker-0/eviction", eviction)
        end = await room.ended(runtime, room.replica())
    assert end.state is ReplicaState.REJECTED
    assert "EvictionByEvictionAPI" in end.reason
