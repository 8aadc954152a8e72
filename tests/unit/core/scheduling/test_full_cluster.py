"""Answer 25: a gang that needs the full cluster starts within its reservation, however many small jobs keep coming."""

from __future__ import annotations

import pytest

from muster_core.models import Job, Resources, RunPolicy
from muster_core.scheduling import Place, Reservation
from muster_testing.pool import ScenarioPool

SECOND = 1_000_000
SMALL_S = 60
"""How long a small job runs."""

WHOLE = Resources(cpu=1000, gpu=1000)


def small(pool: ScenarioPool, name: str, *, bounded: bool) -> Job:
    run = RunPolicy(active_deadline_s=SMALL_S) if bounded else RunPolicy()
    return pool.job(name, 1, servers=0, worker=WHOLE, run=run)


@pytest.mark.parametrize("bounded", [True, False], ids=["known ends", "unknown ends"])
def test_answer_25_starts_within_its_reservation(pool: ScenarioPool, bounded: bool) -> None:
    """A small job arrives every 5 s; the gang has its reservation after 30 s of waiting, and starts no later than that said.

    Where nobody knows when a small job ends, it starts when those that ran then have ended.
    """
    ends: dict[str, int] = {}
    reserved: Reservation | None = None
    reserved_at = 0
    for turn in range(200):
        pool.submit(small(pool, f"s{turn}", bounded=bounded))
        if turn == 20:
            pool.submit(pool.job("whole", 8, floor=8, servers=0, worker=WHOLE))
        for one in pool.decide():
            if isinstance(one, Place):
                ends[one.job_id] = pool.now + SMALL_S * SECOND
        pool.launch()
        if "whole" in ends:
            break
        kept = next((one for one in pool.state.reservations if one.job_id == "whole"), None)
        if reserved is None and kept is not None:
            reserved, reserved_at = kept, pool.now
        pool.after(5)
        for job_id in [job_id for job_id, end in ends.items() if end <= pool.now]:
            pool.finish(job_id)
            del ends[job_id]
    assert reserved is not None
    assert reserved.nodes == ("n1", "n2")
    assert pool.where("whole") == {"n1": {"worker": 4}, "n2": {"worker": 4}}
    assert pool.now <= reserved_at + SMALL_S * SECOND
    if bounded:
        assert reserved.expected_at is not None
        assert pool.now <= reserved.expected_at
    else:
        assert reserved.expected_at is None
