"""An outage of the API server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kubernetes_harness import KubernetesHarness

from muster_core.models import ReplicaState
from muster_runtimes.kubernetes import KubernetesApiError
from muster_testing.cluster import ControlPlane


async def test_an_end_during_an_outage_of_the_api_server_is_observed_after_it(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.create_namespace("jobs")
    (node,) = await own_control_plane.add_kwok_nodes(1, cpu="8", memory="32Gi")
    harness = KubernetesHarness(cluster=own_control_plane, namespace="jobs", path=tmp_path)
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(workers=2, run_for="2s"), harness.replica(), node=node)
        await harness.running(runtime, harness.replica())
        own_control_plane.kill_api_server()
        with pytest.raises(KubernetesApiError):
            await harness.launch(runtime, harness.job(workers=2), harness.replica(1), node=node)
        await asyncio.sleep(0)
        # The replica is not lost while the API server is unavailable.
        assert runtime.job_observations(harness.job_id)[0].state is ReplicaState.RUNNING
        await own_control_plane.restart_api_server()
        end = await harness.ended(runtime, harness.replica())
        assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)
        seen = await harness.launch(runtime, harness.job(workers=2), harness.replica(1), node=node)
        assert seen.state in {ReplicaState.LAUNCHED, ReplicaState.RUNNING}
