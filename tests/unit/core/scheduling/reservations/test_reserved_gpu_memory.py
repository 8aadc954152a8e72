"""Of a GPU that is in full use, room that is kept for later takes nothing now."""

from __future__ import annotations

from muster_core.models import Resources
from muster_testing.pool import ScenarioPool

GIB = 2**30


def test_nobody_starts_on_a_gpu_in_full_use_whose_memory_is_kept(empty: ScenarioPool) -> None:
    empty.add_node("n1", gpu=2, gpu_memory=16 * GIB)
    half = Resources(cpu=100, gpu=500)
    for name in "abc":
        empty.run(empty.job(name, 1, servers=0, worker=half))
        empty.after(1)
    empty.submit(empty.job("whole", 1, servers=0, worker=Resources(cpu=100, gpu=1000)))
    empty.decide()
    empty.after(30)
    empty.submit(empty.job("share", 1, servers=0, worker=Resources(cpu=100, gpu=300)))
    assert empty.placed() == ["share"]
    assert [one.job_id for one in empty.state.reservations] == ["whole"]
    (share,) = empty.record("share").members()
    assert share.gpus == (1,)
