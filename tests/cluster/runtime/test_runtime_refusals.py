"""Jobs of the whole system of which the API server does not take a member."""

from __future__ import annotations

from pathlib import Path

import pytest
from runtime_room import KubeRoom
from test_runtime_system import runs, system_on, tfjob, when

from muster_rpc.v1 import job_pb2
from muster_testing.cluster import Cluster


@pytest.fixture
async def team(cluster: Cluster, room: KubeRoom) -> None:
    """A node of the test's own."""
    labels = {"team": room.namespace}
    await cluster.add_kwok_nodes(1, cpu="8", memory="8Gi", labels=labels, prefix=room.namespace)


@pytest.mark.usefixtures("team")
async def test_a_gang_whose_member_is_forbidden_fails_with_the_server_s_words_and_leaves_no_pod(
    cluster: Cluster, room: KubeRoom, tmp_path: Path
) -> None:
    async with cluster.connect() as api:
        labels = {"pod-security.kubernetes.io/enforce": "baseline"}
        await api.patch(f"/api/v1/namespaces/{room.namespace}", {"metadata": {"labels": labels}})
    document = tfjob(room.namespace, clean="None")
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
        await room.until_gone("pods")


@pytest.mark.usefixtures("team")
async def test_a_gang_that_a_quota_has_no_room_for_goes_back_to_its_queue_and_runs_when_there_is(
    cluster: Cluster, room: KubeRoom, tmp_path: Path
) -> None:
    quotas = f"/api/v1/namespaces/{room.namespace}/resourcequotas"
    async with cluster.connect() as api, system_on(cluster, tmp_path) as (_, muster):
        await api.create(quotas, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2"}}})
        (job,) = await muster.submit(tfjob(room.namespace))
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
