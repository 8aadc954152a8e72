"""The API server is killed and comes back, watches are cut, and events are forgotten: nothing twice, nothing lost, soon as before."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from chaos_room import gang, phases, world_on
from faults import BROKEN_AFTER_ALL, EXPIRED, Break, Dice

from muster_testing.cluster import ControlPlane

SEED = 20
JOBS = 12
CONVERGED_S = 30.0


@pytest.mark.timeout(240)
async def test_jobs_pass_while_the_api_server_is_killed_again_and_again(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with world_on(own_control_plane, tmp_path, kube_timeout_seconds="3") as world:
        faults = [BROKEN_AFTER_ALL, Break(after=True), Break(after=False)]
        world.front.script = Dice(SEED, share=0.05, faults=faults, of_watches=[EXPIRED, Break(after=True)])
        submitting = asyncio.create_task(
            world.submit({f"job-{n}": gang(f"job-{n}", masters=n % 2, run_for="2s") for n in range(JOBS)})
        )
        for _ in range(3):
            await asyncio.sleep(chance.uniform(0.5, 2.0))
            own_control_plane.kill_api_server()
            await asyncio.sleep(chance.uniform(0.5, 2.0))
            await own_control_plane.restart_api_server()
            world.front.cut_watches()
        ids = list((await submitting).values())
        async with asyncio.timeout(CONVERGED_S):
            ended = await world.ends(ids)
        await world.delete(ids)
        await world.until_nothing_is_left(timeout_s=CONVERGED_S)

    assert phases(ended) == {"PHASE_SUCCEEDED": JOBS}
    assert world.history.doubled() == {}
    assert set(world.history.attempts().values()) == {1}


@pytest.mark.timeout(180)
async def test_what_the_api_server_has_forgotten_is_listed_anew(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.add_kwok_nodes(1, cpu="8", memory="32Gi")
    async with world_on(own_control_plane, tmp_path) as world:
        ids = list((await world.submit({"job": gang("job", run_for="8s")})).values())
        await world.until_running(ids[0])
        lists = world.front.seen["list pods"]
        own_control_plane.kill_api_server()
        # Its cache of events begins anew, behind what the watches have seen: a real 410.
        await own_control_plane.restart_api_server()
        ended = await world.ends(ids)
        assert world.front.seen["list pods"] > lists
        await world.delete(ids)
        await world.until_nothing_is_left()

    assert phases(ended) == {"PHASE_SUCCEEDED": 1}
    assert world.history.doubled() == {}
