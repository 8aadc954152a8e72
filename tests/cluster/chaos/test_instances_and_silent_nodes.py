"""Several instances of pod-launcher, suspended ones, and nodes that stop reporting."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from chaos_system import chaos_system_on, gang, phases
from faults import Delay

from muster_testing.cluster import ControlPlane
from muster_testing.cluster.cluster import UnresponsiveNodes

JOBS = 9


@pytest.mark.timeout(180)
async def test_jobs_complete_while_one_instance_after_another_is_killed(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with chaos_system_on(own_control_plane, tmp_path, instances={"pod-launcher": 3}) as chaos:
        ids: list[str] = []
        for number, victim in enumerate(("pod-launcher", "pod-launcher-2", "pod-launcher-3")):
            some = range(number * JOBS // 3, (number + 1) * JOBS // 3)
            ids += (await chaos.submit({f"job-{n}": gang(f"job-{n}", run_for="3s") for n in some})).values()
            chaos.system.kill(victim)
            await chaos.system.wait_ready()
        ended = await chaos.ends(ids)
        await chaos.delete(ids)
        await chaos.until_no_objects_remain()

    assert phases(ended) == {"PHASE_SUCCEEDED": JOBS}
    assert chaos.history.runs_with_several_pods() == {}
    assert set(chaos.history.attempts().values()) == {1}


@pytest.mark.timeout(180)
async def test_a_gang_leaves_a_node_that_stops_reporting(cluster_tools: None, tmp_path: Path) -> None:
    async with (
        ControlPlane(tmp_path / "control-plane", node_grace_s=10) as plane,
        UnresponsiveNodes.added(plane, 1, cpu="4", memory="32Gi", folder=tmp_path) as silent,
        chaos_system_on(plane, tmp_path, kube_node_lost_seconds="3") as chaos,
    ):
        (job_id,) = (await chaos.submit({"job": gang("job", workers=2, run_for="")})).values()
        await chaos.until_running(job_id)
        await plane.add_kwok_nodes(1, cpu="4", memory="32Gi")
        silent.stop_heartbeats()
        again = await chaos.until_attempt(job_id, 2)
        await chaos.cancel(job_id)
        await chaos.ends([job_id])
        await chaos.delete([job_id])
        await chaos.until_no_objects_remain()

    assert {replica.node for replica in again.status.replicas} == {"kwok-0"}
    assert again.status.failures == 0


@pytest.mark.timeout(180)
async def test_a_suspended_pod_launcher_continues_after_its_lease_expired(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with chaos_system_on(own_control_plane, tmp_path) as chaos:
        # It is always suspended in the middle of its work.
        chaos.proxy.script = lambda request: Delay(0.5) if request.is_write else None
        submitting = asyncio.create_task(
            chaos.submit({f"job-{n}": gang(f"job-{n}", workers=6) for n in range(JOBS)})
        )
        for _ in range(3):
            await asyncio.sleep(2)
            launcher = chaos.system.services["pod-launcher"]
            os.kill(launcher, signal.SIGSTOP)
            # Longer than its lease.
            await asyncio.sleep(4)
            os.kill(launcher, signal.SIGCONT)
        ids = list((await submitting).values())
        ended = await chaos.ends(ids)
        await chaos.delete(ids)
        await chaos.until_no_objects_remain()

    assert phases(ended) == {"PHASE_SUCCEEDED": JOBS}
    assert chaos.history.runs_with_several_pods() == {}
    assert set(chaos.history.attempts().values()) == {1}
