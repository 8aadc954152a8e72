"""Jobs of the whole system: the six services, a real API server and simulated nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes_harness import KubernetesHarness
from system_harness import runs, system_on, tfjob, when

from muster_rpc.v1 import job_pb2
from muster_runtimes.kubernetes.labels import JOB_ID
from muster_testing.cluster import Cluster


@pytest.fixture
def team(namespace: str) -> dict[str, str]:
    """The label of this test's nodes."""
    return {"team": namespace}


async def test_a_tfjob_completes_and_leaves_nothing_after_its_deletion(
    cluster: Cluster, harness: KubernetesHarness, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(2, cpu="4", memory="8Gi", labels=team, prefix=harness.namespace)
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(tfjob(harness.namespace, run_for="2s"))
        await when(muster, job.job_id, runs(1))
        assert await harness.names("services") == {"digits-ps-0", "digits-worker-0", "digits-worker-1"}

        ended = await muster.wait(job.job_id)
        assert ended.status.phase == job_pb2.PHASE_SUCCEEDED

        await muster.delete(job.job_id)
        for kind in ("pods", "services", "configmaps"):
            await harness.until_gone(kind)


async def test_clean_pod_policy_all_deletes_the_pods_at_the_end(
    cluster: Cluster, harness: KubernetesHarness, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(2, cpu="4", memory="8Gi", labels=team, prefix=harness.namespace)
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(tfjob(harness.namespace, clean="All", run_for="1s"))
        assert (await muster.wait(job.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        await harness.until_gone("pods")
        await harness.until_gone("services")


async def test_a_gang_with_a_rejected_pod_returns_to_its_queue(
    cluster: Cluster, harness: KubernetesHarness, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(1, cpu="8", memory="8Gi", labels=team, prefix=harness.namespace)
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(tfjob(harness.namespace, reject="OutOfcpu"))
        seen = await when(
            muster, job.job_id, lambda job: any("OutOfcpu" in entry.message for entry in job.status.history)
        )
        assert seen.status.failures == 0
        await muster.cancel(job.job_id)
        assert (await muster.wait(job.job_id)).status.phase == job_pb2.PHASE_CANCELLED


async def test_a_deleted_pod_is_replaced_and_its_peers_continue(
    cluster: Cluster, harness: KubernetesHarness, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(1, cpu="8", memory="8Gi", labels=team, prefix=harness.namespace)
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(tfjob(harness.namespace))
        await when(muster, job.job_id, runs(1))
        await harness.delete_pod("digits-worker-1")
        again = await when(muster, job.job_id, lambda job: job.status.generation > 1 and runs(1)(job))
        restarts = {(one.role, one.index): one.restart for one in again.status.replicas}
        assert restarts == {("ps", 0): 0, ("worker", 0): 0, ("worker", 1): 1}
        assert (again.status.failures, again.status.evictions) == (0, 0)


async def test_a_killed_pod_launcher_continues_where_it_stopped(
    cluster: Cluster, harness: KubernetesHarness, tmp_path: Path, team: dict[str, str]
) -> None:
    await cluster.add_kwok_nodes(1, cpu="8", memory="8Gi", labels=team, prefix=harness.namespace)
    async with system_on(cluster, tmp_path) as (system, muster):
        (job,) = await muster.submit(tfjob(harness.namespace, run_for="6s"))
        await when(muster, job.job_id, runs(1))
        before = {pod.metadata.uid for pod in await harness.pods()}
        system.kill("pod-launcher")
        await system.wait_ready()
        assert (await muster.wait(job.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        assert {pod.metadata.uid for pod in await harness.pods()} <= before
        assert {pod.metadata.labels[JOB_ID] for pod in await harness.pods()} == {job.job_id}
