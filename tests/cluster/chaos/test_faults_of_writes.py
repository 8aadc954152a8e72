"""Answers that are lost, late, wrong or refused: every job ends as it should, no run has two pods, and nothing is left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chaos_room import gang, phases, world_on
from faults import (
    BROKEN,
    BROKEN_AFTER_ALL,
    BUSY,
    CONFLICT,
    EXPIRED,
    Break,
    Dice,
    Late,
    Silence,
)

from muster_testing.cluster import ControlPlane

SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "20"))
JOBS = 12


@pytest.mark.timeout(240)
async def test_jobs_pass_while_a_part_of_all_writes_fails(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with world_on(own_control_plane, tmp_path, kube_timeout_seconds="3") as world:
        dice = Dice(
            SEED,
            share=0.15,
            faults=[
                CONFLICT,
                BUSY,
                BROKEN,
                BROKEN_AFTER_ALL,
                Break(after=True),
                Break(after=False),
                Silence(after=True),
                Silence(after=False),
                Late(1.0),
            ],
            of_watches=[EXPIRED, BROKEN, Break(after=True, seconds=0.5)],
        )
        world.front.script = dice
        ids = await world.submit({f"job-{n}": gang(f"job-{n}", workers=1 + n % 3) for n in range(JOBS)})
        ended = await world.ends(list(ids.values()))
        await world.delete(list(ids.values()))
        await world.until_nothing_is_left(timeout_s=90)

    assert phases(ended) == {"PHASE_SUCCEEDED": JOBS}
    assert world.history.doubled() == {}
    assert set(world.history.attempts().values()) == {1}
    print(dice.happened)
