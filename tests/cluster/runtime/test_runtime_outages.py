"""An API server that goes away, forgets, or comes back: what is known stays true."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from runtime_room import KubeRoom

from muster_core.models import ReplicaState
from muster_runtimes.kubernetes import KubernetesApiError
from muster_testing.cluster import ControlPlane


async def test_an_end_during_an_outage_of_the_api_server_is_seen_after_it(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.create_namespace("jobs")
    (node,) = await own_control_plane.add_kwok_nodes(1, cpu="8", memory="32Gi")
    room = KubeRoom(cluster=own_control_plane, namespace="jobs", path=tmp_path)
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(workers=2, run_for="2s"), room.replica(), node=node)
        await room.running(runtime, room.replica())
        own_control_plane.kill_api_server()
        with pytest.raises(KubernetesApiError):
            await room.launch(runtime, room.job(workers=2), room.replica(1), node=node)
        await asyncio.sleep(0)
        # Nobody takes for lost what he cannot ask about.
        assert runtime.job_observations(room.job_id)[0].state is ReplicaState.RUNNING
        await own_control_plane.restart_api_server()
        end = await room.ended(runtime, room.replica())
        assert (end.state, end.exit_code) == (ReplicaState.EXITED, 0)
        seen = await room.launch(runtime, room.job(workers=2), room.replica(1), node=node)
        assert seen.state in {ReplicaState.LAUNCHED, ReplicaState.RUNNING}
