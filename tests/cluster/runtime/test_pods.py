"""Replicas as pods of a real API server: starts, ends and the objects of a job."""

from __future__ import annotations

import pytest
from kubernetes_harness import MEMBERS_AT_FIRST, KubernetesHarness

from muster_core.frameworks import ConfigFile
from muster_core.models import Framework, ReplicaState
from muster_events.subjects import job_id_of
from muster_runtimes.kubernetes.labels import FINALIZER, JOB, JOB_ID, MEMBERS, SHARD, run_labels


async def test_a_replica_runs_on_its_node(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        seen = await harness.running(runtime, harness.replica())

        (pod,) = await harness.pods()
        assert pod.spec.node_name == node
        assert (pod.metadata.name, pod.metadata.labels[JOB_ID]) == ("mnist-worker-0", harness.job_id)
        assert 0 < seen.started_at <= seen.at


async def test_an_exit_code_is_observed(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        job = harness.job(run_for="100ms", exit_code="3")
        await harness.launch(runtime, job, harness.replica(), node=node)
        end = await harness.ended(runtime, harness.replica())
    assert (end.state, end.exit_code, end.signal) == (ReplicaState.EXITED, 3, None)


async def test_a_pod_rejected_by_the_kubelet_has_the_reason(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(reject="OutOfcpu"), harness.replica(), node=node)
        end = await harness.ended(runtime, harness.replica())
    assert end.state is ReplicaState.REJECTED
    assert end.reason.startswith("OutOfcpu: ")


async def test_a_pod_deleted_by_others_is_rejected(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        await harness.running(runtime, harness.replica())
        await harness.delete_pod("mnist-worker-0")
        end = await harness.ended(runtime, harness.replica())
    assert (end.state, end.reason) == (ReplicaState.REJECTED, "the pod was deleted")


async def test_a_force_deleted_pod_is_not_running(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        await harness.running(runtime, harness.replica())
        await harness.delete_pod("mnist-worker-0", gracePeriodSeconds="0")
        end = await harness.ended(runtime, harness.replica())
    assert end.state is ReplicaState.REJECTED


async def test_the_finalizer_holds_a_pod_until_its_end_is_recorded(
    harness: KubernetesHarness, node: str
) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(run_for="100ms"), harness.replica(), node=node)
        await harness.ended(runtime, harness.replica())
        await harness.delete_pod("mnist-worker-0")

        (held,) = await harness.pods()
        assert FINALIZER in held.metadata.finalizers
        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await harness.until_gone("pods")
        (end,) = runtime.job_observations(harness.job_id)
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)


async def test_a_stopped_replica_exits(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        await harness.running(runtime, harness.replica())
        await runtime.stop(harness.replica(), grace_s=5)
        end = await harness.ended(runtime, harness.replica())
    assert (end.state, end.signal) == (ReplicaState.EXITED, 15)


async def test_a_replica_stopped_before_its_start_never_starts(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.prepare(runtime, harness.job())
        await runtime.stop(harness.replica(), grace_s=5)
        seen = await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        assert seen.state is ReplicaState.REMOVED
        assert await harness.names("pods") == set()


async def test_a_repeated_start_has_no_effect(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        (first,) = await harness.pods()
    async with harness.runtime() as successor:
        await harness.launch(successor, harness.job(), harness.replica(), node=node)
        (second,) = await harness.pods()
        assert first.metadata.uid == second.metadata.uid


async def test_a_new_instance_observes_ends_that_happened_before_it(
    harness: KubernetesHarness, node: str
) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(
            runtime, harness.job(run_for="500ms", exit_code="7"), harness.replica(), node=node
        )
    async with harness.runtime() as successor:
        end = await harness.ended(successor, harness.replica())
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 7)


async def test_a_later_run_replaces_the_pod_of_an_earlier_one(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        job = harness.job(run_for="100ms", exit_code="1")
        await harness.launch(runtime, job, harness.replica(), node=node)
        await harness.ended(runtime, harness.replica())
        (first,) = await harness.pods()
        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await harness.until_finalizers_removed()

        again = harness.replica(restart=1)
        changes = runtime.job_changes()
        while (await harness.launch(runtime, job, again, node=node)).state is ReplicaState.PLACED:
            await anext(changes)
        end = await harness.ended(runtime, again)
        (second,) = await harness.pods()
    assert (end.state, end.exit_code) == (ReplicaState.EXITED, 1)
    assert first.metadata.uid != second.metadata.uid


async def test_a_foreign_pod_with_the_name_is_not_replaced(harness: KubernetesHarness, node: str) -> None:
    theirs = {
        "metadata": {"name": "mnist-worker-0"},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "localhost/none:1"}]},
    }
    async with harness.cluster.connect() as api:
        await api.create(f"/api/v1/namespaces/{harness.namespace}/pods", theirs)
    async with harness.runtime() as runtime:
        seen = await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        assert (seen.state, "is taken by" in seen.reason) == (ReplicaState.REJECTED, True)
        assert await harness.names("pods") == {"mnist-worker-0"}


async def test_another_jobs_pod_with_the_name_is_not_replaced(harness: KubernetesHarness, node: str) -> None:
    """Job ``mnist-worker`` with role ``0`` and job ``mnist`` with role ``worker`` use the same pod name."""
    labels = run_labels(harness.replica(), harness.job(), pool=harness.pool, generation=1)
    labels |= {JOB: "mnist-worker", JOB_ID: job_id_of("another request")}
    labels.pop(SHARD)
    theirs = {
        "metadata": {"name": "mnist-worker-0", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "localhost/none:1"}]},
    }
    async with harness.cluster.connect() as api:
        await api.create(f"/api/v1/namespaces/{harness.namespace}/pods", theirs)
    (before,) = await harness.pods()
    async with harness.runtime() as runtime:
        seen = await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        assert seen.state is ReplicaState.REJECTED
        assert "the name mnist-worker-0 is taken by the job mnist-worker" in seen.reason
        (after,) = await harness.pods()
    assert (after.metadata.uid, after.metadata.deletion_timestamp) == (before.metadata.uid, "")


async def test_each_replica_of_a_framework_has_a_service(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        job = harness.job(workers=2, framework=Framework.TENSORFLOW)
        for index in range(2):
            await harness.launch(runtime, job, harness.replica(index), node=node)
        seen = await harness.running(runtime, harness.replica(1))
        assert await harness.names("services") == {"mnist-worker-0", "mnist-worker-1"}
        assert seen.address == f"mnist-worker-1.{harness.namespace}.svc:2222"


async def test_a_deleted_service_is_created_again_at_the_next_start(
    harness: KubernetesHarness, node: str
) -> None:
    async with harness.runtime() as runtime:
        job = harness.job(framework=Framework.TENSORFLOW, run_for="100ms")
        await harness.launch(runtime, job, harness.replica(), node=node)
        await harness.ended(runtime, harness.replica())
        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await harness.until_finalizers_removed()
        async with harness.cluster.connect() as api:
            await api.delete(f"/api/v1/namespaces/{harness.namespace}/services/mnist-worker-0")

        again = harness.replica(restart=1)
        changes = runtime.job_changes()
        while (await harness.launch(runtime, job, again, node=node)).state is ReplicaState.PLACED:
            await anext(changes)
        await harness.ended(runtime, again)
        assert await harness.names("services") == {"mnist-worker-0"}


async def test_forgetting_a_job_deletes_all_its_objects(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        job = harness.job(framework=Framework.TENSORFLOW, run_for="100ms")
        await harness.launch(runtime, job, harness.replica(), node=node)
        await harness.ended(runtime, harness.replica())
        await runtime.forget(harness.job_id)
        for kind in ("pods", "services", "configmaps"):
            await harness.until_gone(kind)
        assert list(runtime.job_ids()) == []


async def test_a_job_with_only_a_config_map_is_known_and_can_be_forgotten(
    harness: KubernetesHarness, node: str
) -> None:
    async with harness.runtime() as runtime:
        await harness.prepare(runtime, harness.job(framework=Framework.TENSORFLOW))
    async with harness.runtime() as successor:
        assert list(successor.job_ids()) == [harness.job_id]
        await successor.forget(harness.job_id)
        await harness.until_gone("configmaps")


async def test_a_fixed_plain_gang_has_only_pods_which_its_node_owns(
    harness: KubernetesHarness, node: str
) -> None:
    async with harness.runtime() as runtime:
        job = harness.job(workers=2)
        for index in range(2):
            await harness.launch(runtime, job, harness.replica(index), node=node)
        await harness.running(runtime, harness.replica())

        assert await harness.names("configmaps") == set()
        for pod in await harness.pods():
            assert pod.metadata.annotations[MEMBERS] == MEMBERS_AT_FIRST.decode()
            assert await harness.owners(pod) == [("Node", node)]
    async with harness.runtime() as successor:
        assert list(successor.job_ids()) == [harness.job_id]
        await harness.end(successor, harness.replica(0), harness.replica(1))
        await successor.forget(harness.job_id)
        await harness.until_gone("pods")
        assert list(successor.job_ids()) == []


async def test_a_job_that_has_a_config_map_keeps_it(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as earlier:
        earlier.register_job(harness.job_id, harness.job())
        await earlier.write_config(harness.job_id, {"hostfile": ConfigFile(content=b"n1")})
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        (pod,) = await harness.pods()
        assert MEMBERS not in pod.metadata.annotations
        assert await harness.owners(pod) == [("ConfigMap", "mnist-config")]


@pytest.mark.parametrize("namespace_of_job", ["not-there"])
async def test_a_missing_namespace_is_reported(
    harness: KubernetesHarness, node: str, namespace_of_job: str
) -> None:
    harness.namespace, kept = namespace_of_job, harness.namespace
    async with harness.runtime() as runtime:
        seen = await harness.launch(runtime, harness.job(), harness.replica(), node=node)
    harness.namespace = kept
    assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 126)
    assert '"not-there" not found' in seen.reason


async def test_two_pools_of_one_cluster_are_independent(harness: KubernetesHarness, node: str) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(), harness.replica(), node=node)
        async with harness.runtime(pool="another") as other:
            assert list(other.job_ids()) == []
