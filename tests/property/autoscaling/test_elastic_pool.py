"""Random pools: no job shrinks in vain, below its minimum or in a pinned role, and sizes do not oscillate."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from muster_core.autoscaling import ElasticSettings, ScaleProposal, plan
from muster_core.lifecycle import ACTIVE_PHASES
from muster_core.models import Resources
from muster_core.scheduling import Place, Resize
from muster_core.scheduling.placement import Gang, Placement, Snapshot, is_pinned, place
from muster_core.scheduling.queues import minimum_gang
from muster_testing.pool import ScenarioPool

_IDLE_PERIOD_S = 60
_IDLE_PERIODS = 3
"""Idle periods without a proposal after which none follows any more."""

_requests = st.sampled_from(
    [
        Resources(cpu=1000, gpu=1000),
        Resources(cpu=2000),
        Resources(cpu=1000, gpu=2000),
        Resources(cpu=500, gpu=400),
    ]
)
_settings = st.builds(
    ElasticSettings,
    policy=st.sampled_from(["dragon", "marginal_gain", "max_min"]),
    step=st.sampled_from([0, 0, 1]),
    cool_down_s=st.sampled_from([0, 0, 45]),
)


@st.composite
def _pools(draw: st.DrawFn) -> ScenarioPool:
    """A pool with jobs of different ages."""
    pool = ScenarioPool()
    for number in range(draw(st.integers(1, 4))):
        pool.add_node(f"n{number}", cpu=draw(st.integers(4, 16)), gpu=draw(st.integers(0, 4)))
    for number in range(draw(st.integers(1, 7))):
        minimum = draw(st.integers(1, 4))
        size = minimum + draw(st.integers(0, 5))
        job = pool.job(
            f"j{number:02}",
            size,
            floor=minimum,
            most=size + draw(st.integers(0, 3)),
            worker=draw(_requests),
            servers=draw(st.integers(0, 2)),
            preemptible=draw(st.sampled_from([True, True, True, False])),
        )
        pool.submit(job)
        if draw(st.booleans()):
            pool.after(draw(st.sampled_from([1, 40, 100])))
        pool.settle()
    return pool


@settings(max_examples=60, deadline=None)
@given(pool=_pools(), elastic=_settings)
def test_proposals_respect_the_constraints(pool: ScenarioPool, elastic: ElasticSettings) -> None:
    before = _allocations(pool)
    proposals = _plan(pool, elastic)
    assert _plan(pool, elastic) == proposals
    assert _allocations(pool) == before
    for job_id, one in proposals:
        record = pool.record(job_id)
        assert record.job is not None
        role = record.job.role(one.role)
        assert role is not None
        assert not is_pinned(role.name)
        assert role.min <= one.target <= role.max
        assert one.size != one.target
        assert (one.attempt, one.generation) == (record.attempt, record.generation)
        members = {member.key for member in record.gang()}
        removed = {(ref.role, ref.index) for ref in one.removed}
        assert removed <= members
        assert len(removed) == max(one.size - one.target, 0)
        assert all(index > 0 for _, index in removed)
        assert record.job.preemptible or not removed


@settings(max_examples=60, deadline=None)
@given(pool=_pools(), elastic=_settings)
def test_jobs_shrink_only_if_the_waiting_gang_then_fits(pool: ScenarioPool, elastic: ElasticSettings) -> None:
    groups: dict[str, list[ScaleProposal]] = {}
    for proposal in _plan(pool, elastic):
        if proposal.event.beneficiary:
            groups.setdefault(proposal.event.beneficiary, []).append(proposal)
    index = pool.state.index
    for beneficiary, proposals in groups.items():
        assert {event.donors for _, event in proposals} == {len(proposals)}
        gang = minimum_gang(index.classes.class_of(beneficiary).key.gang)
        keys = [
            (job_id, event.attempt, ref.role, ref.index)
            for job_id, event in proposals
            for ref in event.removed
        ]
        # With a reservation for another job, a gang that fits must wait until more is released.
        alone = len(groups) == 1 and all(one.job_id == beneficiary for one in pool.state.reservations)
        mark = index.snapshot.checkpoint()
        for key in keys:
            index.snapshot.release(key)
        assert len(groups) > 1 or _fits(gang, index.snapshot)
        for key in keys if alone else ():
            index.snapshot.allocate(key, index.allocations[key[0]][key])
            assert not _fits(gang, index.snapshot)
            index.snapshot.release(key)
        index.snapshot.rollback(mark)


@settings(max_examples=40, deadline=None)
@given(pool=_pools(), elastic=_settings)
def test_proposals_are_accepted_and_sizes_settle(pool: ScenarioPool, elastic: ElasticSettings) -> None:
    resized: dict[str, list[int]] = {}
    waiting: set[str] = set()
    idle_periods = 0
    for _ in range(40):
        proposals = _plan(pool, elastic)
        waiting |= {event.beneficiary for _, event in proposals if event.beneficiary}
        for job_id, event in proposals:
            pool.publish(job_id, event)
        rejected = pool.state.rejected_proposals
        decided = pool.settle()
        if any(event.beneficiary for _, event in proposals):
            assert pool.state.rejected_proposals == rejected
        for one in decided:
            if isinstance(one, Resize):
                resized.setdefault(one.job_id, []).append(len(one.added) - len(one.removed))
            if isinstance(one, Place):
                waiting.discard(one.job_id)
        assert not waiting, "donors shrank for a job that does not start"
        idle_periods = 0 if proposals or decided else idle_periods + 1
        if idle_periods == _IDLE_PERIODS:
            break
        pool.after(_IDLE_PERIOD_S)
    else:
        raise AssertionError(f"sizes oscillate: {resized}")


def _fits(gang: Gang, snapshot: Snapshot) -> bool:
    return isinstance(place(gang, snapshot, feasible=True), Placement)


def _plan(pool: ScenarioPool, elastic: ElasticSettings) -> list[ScaleProposal]:
    return plan(pool.state, pool.now, elastic)


def _allocations(pool: ScenarioPool) -> object:
    snapshot = pool.state.index.snapshot
    active = [record.job_id for record in pool.records() if record.phase in ACTIVE_PHASES]
    return (
        dict(snapshot.allocations),
        {name: snapshot.free_capacity(name) for name in snapshot.nodes},
        active,
        dict(pool.state.index.ledger.usage(("default",))),
    )
