"""Several copies of pod-launcher, and a node that falls silent: who does the work may change, what is done may not."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from chaos_room import gang, phases, world_on
from faults import Delay

from muster_testing.cluster import ControlPlane
from muster_testing.cluster.silent import SilentNodes

JOBS = 9


@pytest.mark.timeout(180)
async def test_copies_share_the_work_while_one_after_the_other_is_killed(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with world_on(own_control_plane, tmp_path, copies={"pod-launcher": 3}) as world:
        ids: list[str] = []
        for number, victim in enumerate(("pod-launcher", "pod-launcher-2", "pod-launcher-3")):
            some = range(number * JOBS // 3, (number + 1) * JOBS // 3)
            ids += (await world.submit({f"job-{n}": gang(f"job-{n}", run_for="3s") for n in some})).values()
            world.system.kill(victim)
            await world.system.until_ready()
        ended = await world.ends(ids)
        await world.delete(ids)
        await world.until_nothing_is_left()

    assert phases(ended) == {"PHASE_SUCCEEDED": JOBS}
    assert world.history.doubled() == {}
    assert set(world.history.attempts().values()) == {1}


@pytest.mark.timeout(180)
async def test_a_gang_leaves_a_node_that_falls_silent(cluster_tools: None, tmp_path: Path) -> None:
    async with (
        ControlPlane(tmp_path / "control-plane", node_grace_s=10) as plane,
        SilentNodes.added(plane, 1, cpu="4", memory="32Gi", folder=tmp_path) as silent,
        world_on(plane, tmp_path, kube_node_lost_seconds="3") as world,
    ):
        (job_id,) = (await world.submit({"job": gang("job", workers=2, run_for="")})).values()
        await world.until_running(job_id)
        await plane.add_kwok_nodes(1, cpu="4", memory="32Gi")
        silent.fall_silent()
        again = await world.until_attempt(job_id, 2)
        await world.cancel(job_id)
        await world.ends([job_id])
        await world.delete([job_id])
        await world.until_nothing_is_left()

    assert {replica.node for replica in again.status.replicas} == {"kwok-0"}
    assert again.status.failures == 0


@pytest.mark.timeout(180)
async def test_a_launcher_that_was_frozen_for_a_while_goes_on(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with world_on(own_control_plane, tmp_path) as world:
        # So that it always freezes in the middle of its work.
        world.front.script = lambda request: Delay(0.5) if request.is_write else None
        submitting = asyncio.create_task(
            world.submit({f"job-{n}": gang(f"job-{n}", workers=6) for n in range(JOBS)})
        )
        for _ in range(3):
            await asyncio.sleep(2)
            launcher = world.system.services["pod-launcher"]
            os.kill(launcher, signal.SIGSTOP)
            # Longer than its lease.
            await asyncio.sleep(4)
            os.kill(launcher, signal.SIGCONT)
        ids = list((await submitting).values())
        ended = await world.ends(ids)
        await world.delete(ids)
        await world.until_nothing_is_left()

    assert phases(ended) == {"PHASE_SUCCEEDED": JOBS}
    assert world.history.doubled() == {}
    assert set(world.history.attempts().values()) == {1}
