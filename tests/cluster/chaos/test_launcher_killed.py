"""pod-launcher dies just before and just after each of its writes: nothing is done twice, nothing is forgotten."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path

import pytest
from chaos_room import World, gang, phases, world_on
from faults import Kills
from launchers import Launcher

from muster_testing.cluster import ControlPlane

WRITES = (
    "create configmaps",
    "patch configmaps",
    "create services",
    "create pods",
    "delete pods",
    "patch pods",
    "deletecollection pods",
    "deletecollection services",
    "delete configmaps",
)
ROUNDS = int(os.environ.get("MUSTER_CHAOS_ROUNDS", "1"))
"""Each write before and after, that many times: 18 deaths in a round."""


@pytest.mark.timeout(420)
async def test_a_launcher_that_dies_at_every_write_does_each_once(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    points = [(what, after) for _ in range(ROUNDS) for what in WRITES for after in (False, True)]
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with (
        world_on(own_control_plane, tmp_path, copies={"pod-launcher": 0}) as world,
        Launcher.at_work(
            kubeconfig=world.front.kubeconfig,
            bus_url=world.system.bus_url,
            pool=world.system.folder.pool,
            folder=tmp_path / "launcher",
        ) as launcher,
    ):
        kills = Kills(launcher.kill, points, lives=lambda: launcher.starts)
        world.front.script = kills
        numbers = count()
        submitted = 0
        try:
            async with asyncio.timeout(360), asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(pass_jobs(world, kills, numbers))
            submitted = next(numbers)
            await world.until_nothing_is_left(timeout_s=30)
        except BaseException:
            print(kills.left, launcher.last_words())
            raise

    assert kills.left == []
    assert launcher.starts == len(points) + 1
    assert world.history.doubled() == {}
    assert len(world.history.jobs()) == submitted
    assert set(world.history.attempts().values()) == {1}


async def pass_jobs(world: World, kills: Kills, numbers: count[int]) -> None:
    """Have one job after the other from its submission to its removal for as long as there is somebody to kill; each third is cancelled."""
    while kills.left:
        number = next(numbers)
        name = f"job-{number}"
        is_long = number % 3 == 2
        ids = await world.submit({name: gang(name, masters=1, workers=1, run_for="" if is_long else "200ms")})
        if is_long:
            await world.until_running(ids[name])
            await world.cancel(ids[name])
        (ended,) = await world.ends([ids[name]])
        assert phases([ended]) == {"PHASE_CANCELLED" if is_long else "PHASE_SUCCEEDED": 1}
        await world.delete([ids[name]])
