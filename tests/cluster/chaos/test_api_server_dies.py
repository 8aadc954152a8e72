"""The API server is killed and restarted, and watches break and expire: no pod is created twice, none is lost."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from chaos_system import chaos_system_on, gang, phases
from faults import EXPIRED, FAILED_AFTER_EXECUTION, BrokenConnection, RandomFaults

from muster_testing.cluster import ControlPlane

SEED = 20
JOBS = 12
CONVERGED_S = 30.0


@pytest.mark.timeout(240)
async def test_jobs_complete_while_the_api_server_is_killed_repeatedly(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with chaos_system_on(own_control_plane, tmp_path, kube_timeout_seconds="3") as chaos:
        faults = [FAILED_AFTER_EXECUTION, BrokenConnection(after=True), BrokenConnection(after=False)]
        chaos.proxy.script = RandomFaults(
            SEED, share=0.05, faults=faults, of_watches=[EXPIRED, BrokenConnection(after=True)]
        )
        submitting = asyncio.create_task(
            chaos.submit({f"job-{n}": gang(f"job-{n}", masters=n % 2, run_for="2s") for n in range(JOBS)})
        )
        for _ in range(3):
            await asyncio.sleep(rng.uniform(0.5, 2.0))
            own_control_plane.kill_api_server()
            await asyncio.sleep(rng.uniform(0.5, 2.0))
            await own_control_plane.restart_api_server()
            chaos.proxy.cut_watches()
        ids = list((await submitting).values())
        async with asyncio.timeout(CONVERGED_S):
            ended = await chaos.ends(ids)
        await chaos.delete(ids)
        await chaos.until_no_objects_remain(timeout_s=CONVERGED_S)

    assert phases(ended) == {"PHASE_SUCCEEDED": JOBS}
    assert chaos.history.runs_with_several_pods() == {}
    assert set(chaos.history.attempts().values()) == {1}


@pytest.mark.timeout(180)
async def test_expired_watches_list_again_after_a_restart_of_the_api_server(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.add_kwok_nodes(1, cpu="8", memory="32Gi")
    async with chaos_system_on(own_control_plane, tmp_path) as chaos:
        ids = list((await chaos.submit({"job": gang("job", run_for="8s")})).values())
        await chaos.until_running(ids[0])
        lists = chaos.proxy.seen["list pods"]
        own_control_plane.kill_api_server()
        # Its watch cache begins after the versions of the watches: a real 410.
        await own_control_plane.restart_api_server()
        ended = await chaos.ends(ids)
        assert chaos.proxy.seen["list pods"] > lists
        await chaos.delete(ids)
        await chaos.until_no_objects_remain()

    assert phases(ended) == {"PHASE_SUCCEEDED": 1}
    assert chaos.history.runs_with_several_pods() == {}
