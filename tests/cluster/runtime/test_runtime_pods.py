"""Replicas as pods of a real API server: they run, they end, and what ends them is told as it was."""

from __future__ import annotations

import pytest
from runtime_room import MEMBERS_AT_FIRST, KubeRoom

from muster_core.frameworks import ConfigFile
from muster_core.models import Framework, ReplicaState
from muster_events.subjects import job_id_of
from muster_runtimes.kubernetes.labels import FINALIZER, JOB, JOB_ID, MEMBERS, SHARD, run_labels


async def test_a_replica_runs_on_the_node_that_it_was_given(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        seen = await room.running(runtime, room.replica())

        (pod,) = await room.pods()
        assert pod.spec.node_name == node
        assert (pod.metadata.name, pod.metadata.labels[JOB_ID]) == ("mnist-worker-0", room.job_id)
        assert 0 < seen.started_at <= seen.at


async def test_an_exit_code_is_told(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        job = room.job(run_for="100ms", exit_code="3")
        await room.launch(runtime, job, room.replica(), node=node)
        end = await room.ended(runtime, room.replica())
    assert (end.state, end.exit_code, end.signal) == (ReplicaState.EXITED, 3, None)


async def test_what_the_kubelet_refuses_is_rejected_with_its_reason(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(reject="OutOfcpu"), room.replica(), node=node)
        end = await room.ended(runtime, room.replica())
    assert end.state is ReplicaState.REJECTED
    assert end.reason.startswith("OutOfcpu: ")


async def test_a_pod_that_someone_else_deletes_is_no_failure_of_the_replica(
    room: KubeRoom, node: str
) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        await room.running(runtime, room.replica())
        await room.delete_pod("mnist-worker-0")
        end = await room.ended(runtime, room.replica())
    assert (end.state, end.reason) == (ReplicaState.REJECTED, "the pod was deleted")


async def test_a_pod_that_is_removed_by_force_is_not_taken_for_one_that_runs(
    room: KubeRoom, node: str
) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        await room.running(runtime, room.replica())
        await room.delete_pod("mnist-worker-0", gracePeriodSeconds="0")
        end = await room.ended(runtime, room.replica())
    assert end.state is ReplicaState.REJECTED


async def test_a_pod_is_held_until_its_end_is_on_record(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(run_for="100ms"), room.replica(), node=node)
        await room.ended(runtime, room.replica())
        await room.delete_pod("mnist-worker-0")

        (held,) = await room.pods()
        assert FINALIZER in held.metadata.finalizers
        runtime.confirm_recorded(room.job_id, [room.replica()])
        await room.until_gone("pods")
        (end,) = runtime.job_observations(room.job_id)
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)


async def test_a_replica_that_is_stopped_ends_and_counts_as_stopped(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        await room.running(runtime, room.replica())
        await runtime.stop(room.replica(), grace_s=5)
        end = await room.ended(runtime, room.replica())
    assert (end.state, end.signal) == (ReplicaState.EXITED, 15)


async def test_a_replica_that_is_stopped_before_it_starts_never_does(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.prepare(runtime, room.job())
        await runtime.stop(room.replica(), grace_s=5)
        seen = await room.launch(runtime, room.job(), room.replica(), node=node)
        assert seen.state is ReplicaState.REMOVED
        assert await room.names("pods") == set()


async def test_a_start_that_is_repeated_starts_nothing(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        (first,) = await room.pods()
    async with room.runtime() as successor:
        await room.launch(successor, room.job(), room.replica(), node=node)
        (second,) = await room.pods()
        assert first.metadata.uid == second.metadata.uid


async def test_a_successor_sees_what_ended_while_nobody_looked(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(run_for="500ms", exit_code="7"), room.replica(), node=node)
    async with room.runtime() as successor:
        end = await room.ended(successor, room.replica())
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 7)


async def test_a_later_run_takes_the_name_of_an_earlier_one(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        job = room.job(run_for="100ms", exit_code="1")
        await room.launch(runtime, job, room.replica(), node=node)
        await room.ended(runtime, room.replica())
        (first,) = await room.pods()
        runtime.confirm_recorded(room.job_id, [room.replica()])
        await room.until_let_go()

        again = room.replica(restart=1)
        changes = runtime.job_changes()
        while (await room.launch(runtime, job, again, node=node)).state is ReplicaState.PLACED:
            await anext(changes)
        end = await room.ended(runtime, again)
        (second,) = await room.pods()
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 1)
    assert first.metadata.uid != second.metadata.uid


async def test_someone_elses_pod_of_the_name_is_left_alone(room: KubeRoom, node: str) -> None:
    theirs = {
        "metadata": {"name": "mnist-worker-0"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "localhost/none:1"}]},
    }
    async with room.cluster.connect() as api:
        await api.create(f"/api/v1/namespaces/{room.namespace}/pods", theirs)
    async with room.runtime() as runtime:
        seen = await room.launch(runtime, room.job(), room.replica(), node=node)
        assert (seen.state, "is taken by" in seen.reason) == (ReplicaState.REJECTED, True)
        assert await room.names("pods") == {"mnist-worker-0"}


async def test_another_jobs_pod_of_the_name_is_left_alone(room: KubeRoom, node: str) -> None:
    """Job ``mnist-worker`` with a role ``0`` and job ``mnist`` with a role ``worker`` want one name, and both may be running."""
    labels = run_labels(room.replica(), room.job(), pool=room.pool, generation=1)
    labels |= {JOB: "mnist-worker", JOB_ID: job_id_of("another request")}
    labels.pop(SHARD)
    theirs = {
        "metadata": {"name": "mnist-worker-0", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "localhost/none:1"}]},
    }
    async with room.cluster.connect() as api:
        await api.create(f"/api/v1/namespaces/{room.namespace}/pods", theirs)
    (before,) = await room.pods()
    async with room.runtime() as runtime:
        seen = await room.launch(runtime, room.job(), room.replica(), node=node)
        assert seen.state is ReplicaState.REJECTED
        assert "the name mnist-worker-0 is taken by the job mnist-worker" in seen.reason
        (after,) = await room.pods()
    assert (after.metadata.uid, after.metadata.deletion_timestamp) == (before.metadata.uid, "")


async def test_replicas_of_a_framework_have_a_service_each(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        job = room.job(workers=2, framework=Framework.TENSORFLOW)
        for index in range(2):
            await room.launch(runtime, job, room.replica(index), node=node)
        seen = await room.running(runtime, room.replica(1))
        assert await room.names("services") == {"mnist-worker-0", "mnist-worker-1"}
        assert seen.address == f"mnist-worker-1.{room.namespace}.svc:2222"


async def test_a_service_that_somebody_deleted_is_there_when_its_replica_starts_again(
    room: KubeRoom, node: str
) -> None:
    async with room.runtime() as runtime:
        job = room.job(framework=Framework.TENSORFLOW, run_for="100ms")
        await room.launch(runtime, job, room.replica(), node=node)
        await room.ended(runtime, room.replica())
        runtime.confirm_recorded(room.job_id, [room.replica()])
        await room.until_let_go()
        async with room.cluster.connect() as api:
            await api.delete(f"/api/v1/namespaces/{room.namespace}/services/mnist-worker-0")

        again = room.replica(restart=1)
        changes = runtime.job_changes()
        while (await room.launch(runtime, job, again, node=node)).state is ReplicaState.PLACED:
            await anext(changes)
        await room.ended(runtime, again)
        assert await room.names("services") == {"mnist-worker-0"}


async def test_nothing_outlives_a_job_that_is_forgotten(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        job = room.job(framework=Framework.TENSORFLOW, run_for="100ms")
        await room.launch(runtime, job, room.replica(), node=node)
        await room.ended(runtime, room.replica())
        await runtime.forget(room.job_id)
        for kind in ("pods", "services", "configmaps"):
            await room.until_gone(kind)
        assert list(runtime.job_ids()) == []


async def test_a_job_of_which_only_the_config_map_is_left_is_known_and_forgotten(
    room: KubeRoom, node: str
) -> None:
    async with room.runtime() as runtime:
        await room.prepare(runtime, room.job(framework=Framework.TENSORFLOW))
    async with room.runtime() as successor:
        assert list(successor.job_ids()) == [room.job_id]
        await successor.forget(room.job_id)
        await room.until_gone("configmaps")


async def test_a_fixed_plain_gang_is_pods_alone_which_go_with_their_node(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        job = room.job(workers=2)
        for index in range(2):
            await room.launch(runtime, job, room.replica(index), node=node)
        await room.running(runtime, room.replica())

        assert await room.names("configmaps") == set()
        for pod in await room.pods():
            assert pod.metadata.annotations[MEMBERS] == MEMBERS_AT_FIRST.decode()
            assert await room.owners(pod) == [("Node", node)]
    async with room.runtime() as successor:
        assert list(successor.job_ids()) == [room.job_id]
        await room.end(successor, room.replica(0), room.replica(1))
        await successor.forget(room.job_id)
        await room.until_gone("pods")
        assert list(successor.job_ids()) == []


async def test_a_job_that_has_a_config_map_keeps_it(room: KubeRoom, node: str) -> None:
    async with room.runtime() as earlier:
        earlier.register_job(room.job_id, room.job())
        await earlier.write_config(room.job_id, {"hostfile": ConfigFile(content=b"n1")})
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        (pod,) = await room.pods()
        assert MEMBERS not in pod.metadata.annotations
        assert await room.owners(pod) == [("ConfigMap", "mnist-config")]


@pytest.mark.parametrize("namespace_of_job", ["not-there"])
async def test_a_namespace_that_is_not_there_is_said(
    room: KubeRoom, node: str, namespace_of_job: str
) -> None:
    room.namespace, kept = namespace_of_job, room.namespace
    async with room.runtime() as runtime:
        seen = await room.launch(runtime, room.job(), room.replica(), node=node)
    room.namespace = kept
    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 126)
    assert '"not-there" not found' in seen.reason


async def test_two_pools_of_one_cluster_leave_each_other_alone(room: KubeRoom, node: str) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(), room.replica(), node=node)
        async with room.runtime(pool="another") as other:
            assert list(other.job_ids()) == []
