"""Nodes of a real API server, and replicas whose node is deleted or drained."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from kubernetes_harness import TIMEOUT_S, KubernetesHarness

from muster_core.models import Node, ReplicaState, Resources, Taint
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_testing.cluster import Cluster
from muster_testing.cluster.views import Taint as NodeTaint


async def until_node(
    runtime: KubernetesRuntime, name: str, holds: Callable[[Node | None], bool]
) -> Node | None:
    """Wait until ``holds`` is true for the node (None if it does not exist)."""
    async with asyncio.timeout(TIMEOUT_S):
        async for _ in runtime.node_changes():
            seen = next((node for node in runtime.nodes() if node.name == name), None)
            if holds(seen):
                return seen
    raise AssertionError("the changes of nodes ended")


async def test_a_node_is_reported_with_its_capacity_and_taints(
    harness: KubernetesHarness, cluster: Cluster, namespace: str
) -> None:
    taint = NodeTaint(key="dedicated", value="train", effect="NoSchedule")
    (name,) = await cluster.add_kwok_nodes(
        1, cpu="8", memory="32Gi", gpus=4, labels={"zone": "a"}, taints=[taint], prefix=namespace
    )
    async with harness.runtime() as runtime:
        node = await until_node(runtime, name, lambda node: node is not None and node.ready)
    await cluster.remove_nodes([name])

    assert node is not None
    assert node.allocatable == Resources(cpu=8000, memory=32 * 2**30, gpu=4000)
    assert (node.foreign, node.pods, node.unschedulable) == (Resources(), 110, False)
    assert node.labels["zone"] == "a"
    assert Taint(key="dedicated", value="train", effect="NoSchedule") in node.taints


async def test_foreign_usage_is_counted_while_the_pods_exist(harness: KubernetesHarness, node: str) -> None:
    resources = {"requests": {"cpu": "1500m", "memory": "1Gi"}}
    container = {"name": "c", "image": "localhost/none:1", "resources": resources}
    theirs = {"metadata": {"name": "theirs"}, "spec": {"nodeName": node, "containers": [container]}}
    async with harness.cluster.connect() as api, harness.runtime() as runtime:
        # The scheduler counts the pods of this pool.
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        await api.create(f"/api/v1/namespaces/{harness.namespace}/pods", theirs)
        used = await until_node(runtime, node, lambda seen: seen is not None and seen.foreign.cpu > 0)
        assert used is not None
        assert (used.foreign, used.pods) == (Resources(cpu=1500, memory=2**30), 109)
        await harness.delete_pod("theirs")
        await until_node(runtime, node, lambda seen: seen is not None and seen.foreign == Resources())


async def test_a_cordoned_node_is_unschedulable(harness: KubernetesHarness, node: str) -> None:
    async with harness.cluster.connect() as api, harness.runtime() as runtime:
        await api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        await until_node(runtime, node, lambda seen: seen is not None and seen.unschedulable)


async def test_a_replica_on_a_deleted_node_is_rejected(
    harness: KubernetesHarness, cluster: Cluster, namespace: str
) -> None:
    (name,) = await cluster.add_kwok_nodes(1, cpu="8", memory="32Gi", prefix=f"{namespace}-x")
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=name)
        await harness.running(runtime, harness.replica())
        await cluster.remove_nodes([name])
        # Delete the pod now; the garbage collector would take a minute.
        await harness.delete_pod("mnist-worker-0", gracePeriodSeconds="1")
        end = await harness.ended(runtime, harness.replica())
        assert end.state is ReplicaState.REJECTED

        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await harness.until_gone("pods")


async def test_a_drained_replica_has_the_eviction_as_its_reason(
    harness: KubernetesHarness, node: str
) -> None:
    async with harness.cluster.connect() as api, harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        await harness.running(runtime, harness.replica())
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "mnist-worker-0"}}
        # The response is a status.
        with suppress(msgspec.ValidationError):
            await api.create(f"/api/v1/namespaces/{harness.namespace}/pods/mnist-worker-0/eviction", eviction)
        end = await harness.ended(runtime, harness.replica())
    assert end.state is ReplicaState.REJECTED
    assert "EvictionByEvictionAPI" in end.reason
