"""Lost, late and failing responses: every job completes, no run has two pods, and no objects remain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chaos_system import chaos_system_on, gang, phases
from faults import (
    BUSY,
    CONFLICT,
    EXPIRED,
    FAILED,
    FAILED_AFTER_EXECUTION,
    BrokenConnection,
    LateRequest,
    NoResponse,
    RandomFaults,
)

from muster_testing.cluster import ControlPlane

SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "20"))
JOBS = 12


@pytest.mark.timeout(240)
async def test_jobs_complete_while_a_share_of_all_writes_fails(
    own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    await own_control_plane.add_kwok_nodes(4, cpu="8", memory="32Gi")
    async with chaos_system_on(own_control_plane, tmp_path, kube_timeout_seconds="3") as chaos:
        dice = RandomFaults(
            SEED,
            share=0.15,
            faults=[
                CONFLICT,
                BUSY,
                FAILED,
                FAILED_AFTER_EXECUTION,
                BrokenConnection(after=True),
                BrokenConnection(after=False),
                NoResponse(after=True),
                NoResponse(after=False),
                LateRequest(1.0),
            ],
            of_watches=[EXPIRED, FAILED, BrokenConnection(after=True, seconds=0.5)],
        )
        chaos.proxy.script = dice
        ids = await chaos.submit({f"job-{n}": gang(f"job-{n}", workers=1 + n % 3) for n in range(JOBS)})
        ended = await chaos.ends(list(ids.values()))
        await chaos.delete(list(ids.values()))
        await chaos.until_no_objects_remain(timeout_s=90)

    assert phases(ended) == {"PHASE_SUCCEEDED": JOBS}
    assert chaos.history.runs_with_several_pods() == {}
    assert set(chaos.history.attempts().values()) == {1}
    print(dice.happened)
