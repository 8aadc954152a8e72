"""Jobs of the whole system with a pod that the API server rejects."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes_harness import KubernetesHarness
from system_harness import runs, system_on, tfjob, when

from muster_rpc.v1 import job_pb2
from muster_testing.cluster import Cluster


@pytest.fixture
async def team(cluster: Cluster, harness: KubernetesHarness) -> None:
    """A node for this test."""
    labels = {"team": harness.namespace}
    await cluster.add_kwok_nodes(1, cpu="8", memory="8Gi", labels=labels, prefix=harness.namespace)


@pytest.mark.usefixtures("team")
async def test_a_gang_with_a_forbidden_pod_fails_with_the_servers_message_and_leaves_no_pods(
    cluster: Cluster, harness: KubernetesHarness, tmp_path: Path
) -> None:
    async with cluster.connect() as api:
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        await api.patch(f"/api/v1/namespaces/{harness.namespace}", {"metadata": {"labels": labels}})
    document = tfjob(harness.namespace, clean="None")
    document = document.replace("nodeSelector:", "hostNetwork: true\n          nodeSelector:")
    async with system_on(cluster, tmp_path) as (_, muster):
        (job,) = await muster.submit(document)
        ended = await muster.wait(job.job_id)

        assert ended.status.phase == job_pb2.PHASE_FAILED
        refused = [one for one in ended.status.replicas if one.exit_code == 126]
        assert {one.role for one in refused} == {"worker"}
        assert (
            'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)' in refused[0].reason
        )
        assert "violates PodSecurity" in ended.status.reason.message
        await harness.until_gone("pods")


@pytest.mark.usefixtures("team")
async def test_a_gang_over_quota_returns_to_its_queue_and_runs_when_the_quota_allows(
    cluster: Cluster, harness: KubernetesHarness, tmp_path: Path
) -> None:
    quotas = f"/api/v1/namespaces/{harness.namespace}/resourcequotas"
    async with cluster.connect() as api, system_on(cluster, tmp_path) as (_, muster):
        await api.create(quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}})
        (job,) = await muster.submit(tfjob(harness.namespace))
        waiting = await when(
            muster,
            job.job_id,
            lambda seen: any("exceeded quota: small" in entry.message for entry in seen.status.history),
        )
        assert waiting.status.failures == 0

        await api.delete(f"{quotas}/small")
        running = await when(muster, job.job_id, lambda seen: runs(seen.status.attempt)(seen))
        assert (running.status.attempt > 1, running.status.failures) == (True, 0)
        await muster.cancel(job.job_id)
        await muster.wait(job.job_id)
