"""Names that are taken: what has one is what was asked for, or it makes way by its uid, whoever holds it for however long."""

from __future__ import annotations

import asyncio

from runtime_room import PATIENCE_S, KubeRoom

from muster_core.models import ReplicaState
from muster_runtimes import ReplicaId
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_runtimes.kubernetes.labels import FINALIZER, JOB_ID, MANIFEST_HASH


async def until_placed(room: KubeRoom, runtime: KubernetesRuntime, replica: ReplicaId, *, node: str) -> None:
    """Start a replica again and again, as its job is looked at, until its name is free."""
    job = room.job()
    changes = runtime.job_changes()
    async with asyncio.timeout(PATIENCE_S):
        while (await room.launch(runtime, job, replica, node=node)).state is ReplicaState.PLACED:
            await anext(changes)


async def test_a_name_is_waited_for_while_an_earlier_pod_is_held(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(run_for="100ms"), room.replica(), node=node)
        await room.ended(runtime, room.replica())
        (first,) = await room.pods()

        again = room.replica(attempt=2)
        waiting = asyncio.create_task(until_placed(room, runtime, again, node=node))
        async with asyncio.timeout(PATIENCE_S):
            while not (await room.pods())[0].metadata.deletion_timestamp:
                await asyncio.sleep(0.05)
        (held,) = await room.pods()
        assert (held.metadata.uid, held.metadata.finalizers) == (first.metadata.uid, (FINALIZER,))

        # As long as nobody has recorded how the first ended, the second does not begin.
        assert not waiting.done()
        runtime.confirm_recorded(room.job_id, [room.replica()])
        await waiting
        await room.running(runtime, again)


async def test_who_waited_for_its_name_does_not_start_where_others_have_taken_the_room(
    room: KubeRoom, node: str
) -> None:
    theirs = {
        "metadata": {"name": "theirs"},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "7850m"}}}],
        },
    }
    async with room.runtime() as runtime:
        reporting = asyncio.create_task(report(runtime))
        # Beside this one and theirs there is no room for another.
        await room.launch(runtime, room.job(workers=2), room.replica(1), node=node)
        await room.launch(runtime, room.job(run_for="100ms"), room.replica(), node=node)
        await room.ended(runtime, room.replica())
        again = room.replica(attempt=2)
        assert (await room.launch(runtime, room.job(), again, node=node)).state is ReplicaState.PLACED
        async with room.cluster.connect() as api:
            await api.create(f"/api/v1/namespaces/{room.namespace}/pods", theirs)
        async with asyncio.timeout(PATIENCE_S):
            while next(one.foreign.cpu for one in runtime.nodes() if one.name == node) < 7850:
                await asyncio.sleep(0.05)
        runtime.confirm_recorded(room.job_id, [room.replica()])
        await until_placed(room, runtime, again, node=node)
        end = await room.ended(runtime, again)
        reporting.cancel()

    assert (end.state, end.reason) == (
        ReplicaState.REJECTED,
        f"other pods have taken the capacity of node {node} since the placement",
    )
    assert {pod.metadata.name for pod in await room.pods()} == {"theirs", "mnist-worker-1"}


async def report(runtime: KubernetesRuntime) -> None:
    """What the copy that reports the nodes does."""
    async for _ in runtime.node_changes():
        runtime.nodes()


async def test_a_pod_of_the_same_run_that_was_not_asked_for_makes_way(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        (ours,) = await room.pods()
    labels = dict(ours.metadata.labels)
    container = {"name": "main", "image": "localhost/other:1"}
    pods = f"/api/v1/namespaces/{room.namespace}/pods"
    async with room.cluster.connect() as api:
        await api.patch(f"{pods}/mnist-worker-0", {"metadata": {"finalizers": None}})
        await api.delete(f"{pods}/mnist-worker-0", gracePeriodSeconds="0")
        # Without the partition's label no launcher sees it, until the name is asked for.
        labels.pop("muster.dev/shard")
        theirs = {"metadata": {"name": "mnist-worker-0", "labels": labels}}
        spec = {"nodeName": node, "containers": [container]}
        await api.create(pods, {**theirs, "spec": spec})
    async with room.runtime() as runtime:
        await until_placed(room, runtime, room.replica(), node=node)
        await room.running(runtime, room.replica())
        (pod,) = await room.pods()
    assert pod.metadata.annotations[MANIFEST_HASH] == ours.metadata.annotations[MANIFEST_HASH]


async def test_a_gang_of_which_one_is_refused_leaves_no_pod(room: KubeRoom, node: str) -> None:
    theirs = {
        "metadata": {"name": "mnist-worker-3"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "localhost/none:1"}]},
    }
    async with room.cluster.connect() as api:
        await api.create(f"/api/v1/namespaces/{room.namespace}/pods", theirs)
    async with room.runtime() as runtime:
        job = room.job(workers=6)
        await room.prepare(runtime, job)
        replicas = [room.replica(index) for index in range(6)]
        launches = [await room.launch_of(runtime, job, replica, node=node) for replica in replicas]
        await asyncio.gather(*map(runtime.start, launches))

        ends = [await room.ended(runtime, replica) for replica in replicas]
        assert {end.state for end in ends} == {ReplicaState.REJECTED}
        reasons = {end.reason.rpartition(": ")[2] for index, end in enumerate(ends) if index != 3}
        assert reasons == {"another pod of its gang was rejected"}
        runtime.confirm_recorded(room.job_id, replicas)
        async with asyncio.timeout(PATIENCE_S):
            while {pod.metadata.name for pod in await room.pods()} != {"mnist-worker-3"}:
                await asyncio.sleep(0.05)


async def test_a_pod_that_comes_after_its_job_was_forgotten_goes(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        (pod,) = await room.pods()
        await runtime.stop(room.replica(), grace_s=5)
        await room.ended(runtime, room.replica())
        await runtime.forget(room.job_id)
        await room.until_gone("pods")

        late = {
            "metadata": {
                "name": "mnist-worker-0",
                "labels": pod.metadata.labels,
                "finalizers": [FINALIZER],
            },
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "localhost/none:1"}]},
        }
        changes = runtime.job_changes()
        async with room.cluster.connect() as api:
            await api.create(f"/api/v1/namespaces/{room.namespace}/pods", late)
        assert pod.metadata.labels[JOB_ID] == room.job_id
        async with asyncio.timeout(PATIENCE_S):
            assert await anext(changes) == room.job_id
        # What its owner does with a job that nobody knows.
        await runtime.stop(room.replica(), grace_s=5)
        await room.ended(runtime, room.replica())
        await runtime.forget(room.job_id)
        await room.until_gone("pods")
