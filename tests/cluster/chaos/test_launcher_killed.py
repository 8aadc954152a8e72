"""pod-launcher is killed before and after each of its writes: none is repeated, none is lost."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path

import pytest
from chaos_system import ChaosSystem, chaos_system_on, gang, phases
from faults import KillPoints
from launcher_process import RestartingLauncher

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
"""The number of rounds; each kills before and after every write, 18 times."""


@pytest.mark.timeout(420)
async def test_jobs_complete_while_pod_launcher_is_killed_at_every_write(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    points = [(what, after) for _ in range(ROUNDS) for what in WRITES for after in (False, True)]
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with (
        chaos_system_on(own_control_plane, tmp_path, instances={"pod-launcher": 0}) as chaos,
        RestartingLauncher.at_work(
            kubeconfig=chaos.proxy.kubeconfig,
            bus_url=chaos.system.bus_url,
            pool=chaos.system.directory.pool,
            folder=tmp_path / "launcher",
        ) as launcher,
    ):
        kills = KillPoints(launcher.kill, points, lives=lambda: launcher.starts)
        chaos.proxy.script = kills
        numbers = count()
        submitted = 0
        try:
            async with asyncio.timeout(360), asyncio.TaskGroup() as tasks:
                for _ in range(4):
                    tasks.create_task(pass_jobs(chaos, kills, numbers))
            submitted = next(numbers)
            await chaos.until_no_objects_remain(timeout_s=30)
        except BaseException:
            print(kills.left, launcher.log_tail())
            raise

    assert kills.left == []
    assert launcher.starts == len(points) + 1
    assert chaos.history.runs_with_several_pods() == {}
    assert len(chaos.history.jobs()) == submitted
    assert set(chaos.history.attempts().values()) == {1}


async def pass_jobs(chaos: ChaosSystem, kills: KillPoints, numbers: count[int]) -> None:
    """Run jobs from submission to deletion while kill points remain; every third job is cancelled."""
    while kills.left:
        number = next(numbers)
        name = f"job-{number}"
        is_long = number % 3 == 2
        ids = await chaos.submit({name: gang(name, masters=1, workers=1, run_for="" if is_long else "200ms")})
        if is_long:
            await chaos.until_running(ids[name])
            await chaos.cancel(ids[name])
        (ended,) = await chaos.ends([ids[name]])
        assert phases([ended]) == {"PHASE_CANCELLED" if is_long else "PHASE_SUCCEEDED": 1}
        await chaos.delete([ids[name]])
