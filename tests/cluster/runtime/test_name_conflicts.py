"""Pod names that are taken: the pod is the requested one, is replaced by its uid, or rejects the start."""

from __future__ import annotations

import asyncio

from kubernetes_harness import TIMEOUT_S, KubernetesHarness

from muster_core.models import ReplicaState
from muster_runtimes import ReplicaId
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_runtimes.kubernetes.labels import FINALIZER, JOB_ID, MANIFEST_HASH


async def until_placed(
    harness: KubernetesHarness, runtime: KubernetesRuntime, replica: ReplicaId, *, node: str
) -> None:
    """Start a replica after every change of its job until its name is free."""
    job = harness.job()
    changes = runtime.job_changes()
    async with asyncio.timeout(TIMEOUT_S):
        while (await harness.launch(runtime, job, replica, node=node)).state is ReplicaState.PLACED:
            await anext(changes)


async def test_a_start_waits_for_the_name_of_a_terminating_pod(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(run_for="100ms"), harness.replica(), node=node)
        await harness.ended(runtime, harness.replica())
        (first,) = await harness.pods()

        again = harness.replica(attempt=2)
        waiting = asyncio.create_task(until_placed(harness, runtime, again, node=node))
        async with asyncio.timeout(TIMEOUT_S):
            while not (await harness.pods())[0].metadata.deletion_timestamp:
                await asyncio.sleep(0.05)
        (held,) = await harness.pods()
        assert (held.metadata.uid, held.metadata.finalizers) == (first.metadata.uid, (FINALIZER,))

        # The second run does not start before the end of the first is recorded.
        assert not waiting.done()
        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await waiting
        await harness.running(runtime, again)


async def test_a_delayed_start_is_rejected_if_its_node_is_full(harness: KubernetesHarness, node: str) -> None:
    theirs = {
        "metadata": {"name": "theirs"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "7850m"}}}],
        },
    }
    async with harness.runtime() as runtime:
        reporting = asyncio.create_task(report(runtime))
        # This pod and the foreign one fill the node.
        await harness.launch(runtime, harness.job(workers=2), harness.replica(1), node=node)
        await harness.launch(runtime, harness.job(run_for="100ms"), harness.replica(), node=node)
        await harness.ended(runtime, harness.replica())
        again = harness.replica(attempt=2)
        assert (await harness.launch(runtime, harness.job(), again, node=node)).state is ReplicaState.PLACED
        async with harness.cluster.connect() as api:
            await api.create(f"/api/v1/namespaces/{harness.namespace}/pods", theirs)
        async with asyncio.timeout(TIMEOUT_S):
            while next(one.foreign.cpu for one in runtime.nodes() if one.name == node) < 7850:
                await asyncio.sleep(0.05)
        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await until_placed(harness, runtime, again, node=node)
        end = await harness.ended(runtime, again)
        reporting.cancel()

    assert (end.state, end.reason) == (
        ReplicaState.REJECTED,
        f"other pods have taken the capacity of node {node} since the placement",
    )
    assert {pod.metadata.name for pod in await harness.pods()} == {"theirs", "mnist-worker-1"}


async def report(runtime: KubernetesRuntime) -> None:
    """Follow node changes, like the instance that reports nodes."""
    async for _ in runtime.node_changes():
        runtime.nodes()


async def test_a_pod_of_the_same_run_with_another_manifest_is_replaced(
    harness: KubernetesHarness, node: str
) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        (ours,) = await harness.pods()
    labels = dict(ours.metadata.labels)
    container = {"name": "main", "image": "localhost/other:1"}
    pods = f"/api/v1/namespaces/{harness.namespace}/pods"
    async with harness.cluster.connect() as api:
        await api.patch(f"{pods}/mnist-worker-0", {"metadata": {"finalizers": None}})
        await api.delete(f"{pods}/mnist-worker-0", gracePeriodSeconds="0")
        # Without the partition's label no informer sees it.
        labels.pop("muster.dev/shard")
        theirs = {"metadata": {"name": "mnist-worker-0", "labels": labels}}
        spec = {"nodeName": node, "containers": [container]}
        await api.create(pods, {**theirs, "spec": spec})
    async with harness.runtime() as runtime:
        await until_placed(harness, runtime, harness.replica(), node=node)
        await harness.running(runtime, harness.replica())
        (pod,) = await harness.pods()
    assert pod.metadata.annotations[MANIFEST_HASH] == ours.metadata.annotations[MANIFEST_HASH]


async def test_a_gang_with_a_rejected_pod_leaves_no_pods(harness: KubernetesHarness, node: str) -> None:
    theirs = {
        "metadata": {"name": "mnist-worker-3"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "localhost/none:1"}]},
    }
    async with harness.cluster.connect() as api:
        await api.create(f"/api/v1/namespaces/{harness.namespace}/pods", theirs)
    async with harness.runtime() as runtime:
        job = harness.job(workers=6)
        await harness.prepare(runtime, job)
        replicas = [harness.replica(index) for index in range(6)]
        launches = [await harness.launch_of(runtime, job, replica, node=node) for replica in replicas]
        await asyncio.gather(*map(runtime.start, launches))

        ends = [await harness.ended(runtime, replica) for replica in replicas]
        assert {end.state for end in ends} == {ReplicaState.REJECTED}
        reasons = {end.reason.rpartition(": ")[2] for index, end in enumerate(ends) if index != 3}
        assert reasons == {"another pod of its gang was rejected"}
        runtime.confirm_recorded(harness.job_id, replicas)
        async with asyncio.timeout(TIMEOUT_S):
            while {pod.metadata.name for pod in await harness.pods()} != {"mnist-worker-3"}:
                await asyncio.sleep(0.05)


async def test_a_pod_created_after_its_job_was_forgotten_is_deleted(
    harness: KubernetesHarness, node: str
) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        (pod,) = await harness.pods()
        await runtime.stop(harness.replica(), grace_s=5)
        await harness.ended(runtime, harness.replica())
        await runtime.forget(harness.job_id)
        await harness.until_gone("pods")

        late = {
            "metadata": {"name": "mnist-worker-0", "labels": pod.metadata.labels, "finalizers": [FINALIZER]},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "localhost/none:1"}]},
        }
        changes = runtime.job_changes()
        async with harness.cluster.connect() as api:
            await api.create(f"/api/v1/namespaces/{harness.namespace}/pods", late)
        assert pod.metadata.labels[JOB_ID] == harness.job_id
        async with asyncio.timeout(TIMEOUT_S):
            assert await anext(changes) == harness.job_id
        # pod-launcher forgets unknown jobs.
        await runtime.stop(harness.replica(), grace_s=5)
        await harness.ended(runtime, harness.replica())
        await runtime.forget(harness.job_id)
        await harness.until_gone("pods")
