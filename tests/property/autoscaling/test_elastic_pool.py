"""Whatever a pool looks like: nobody shrinks in vain, below its minimum or a role that is not to shrink, and nothing goes to and fro."""

from __future__ import annotations

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from muster_core.autoscaling import ElasticSettings, ScaleProposal, plan, view_of_state
from muster_core.lifecycle import ACTIVE_PHASES
from muster_core.models import Job, Node, Resources, Role, Template
from muster_core.scheduling import Place, Resize
from muster_core.scheduling.placement import Gang, Placement, Snapshot, place
from muster_core.scheduling.placement.roles import is_pinned
from muster_core.scheduling.queues import minimum_gang
from muster_testing.pool import VirtualPool

_QUIET_S = 60
_STILL = 3
"""Quiet times without a proposal after which none comes any more."""

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
def _jobs(draw: st.DrawFn, number: int) -> Job:
    floor = draw(st.integers(1, 4))
    size = floor + draw(st.integers(0, 5))
    worker = Role(
        name="worker",
        replicas=size,
        min=floor,
        max=size + draw(st.integers(0, 3)),
        template=Template(requests=draw(_requests)),
    )
    servers = draw(st.integers(0, 2))
    ps = Role(
        name="ps",
        replicas=servers,
        min=servers,
        max=servers,
        template=Template(requests=Resources(cpu=1000)),
    )
    job = Job(name=f"j{number:02}", roles=(ps, worker) if servers else (worker,))
    return msgspec.structs.replace(job, preemptible=draw(st.sampled_from([True, True, True, False])))


@st.composite
def _pools(draw: st.DrawFn) -> VirtualPool:
    """A pool in which jobs have arrived, and some have been there for long."""
    pool = VirtualPool()
    for number in range(draw(st.integers(1, 4))):
        offer = Resources(cpu=draw(st.integers(4, 16)) * 1000, gpu=draw(st.integers(0, 4)) * 1000)
        pool.node(Node(name=f"n{number}", allocatable=offer))
    for number in range(draw(st.integers(1, 7))):
        pool.submit(draw(_jobs(number)))
        if draw(st.booleans()):
            pool.after(draw(st.sampled_from([1, 40, 100])))
        pool.settle()
    return pool


@settings(max_examples=60, deadline=None)
@given(pool=_pools(), numbers=_settings)
def test_proposals_keep_the_rules(pool: VirtualPool, numbers: ElasticSettings) -> None:
    before = _held(pool)
    proposals = _look(pool, numbers)
    assert _look(pool, numbers) == proposals
    assert _held(pool) == before
    for one in proposals:
        record = pool.record(one.job_id)
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
@given(pool=_pools(), numbers=_settings)
def test_nobody_shrinks_unless_the_waiting_gang_then_fits(
    pool: VirtualPool, numbers: ElasticSettings
) -> None:
    heads: dict[str, list[ScaleProposal]] = {}
    for one in _look(pool, numbers):
        if one.beneficiary:
            heads.setdefault(one.beneficiary, []).append(one)
    index = pool.state.index
    for head, proposals in heads.items():
        assert {one.donors for one in proposals} == {len(proposals)}
        gang = minimum_gang(index.classes.class_of(head).key.gang)
        keys = [(one.job_id, one.attempt, ref.role, ref.index) for one in proposals for ref in one.removed]
        # Room that is kept for others makes a gang that would fit as it is wait for more.
        alone = len(heads) == 1 and all(one.job_id == head for one in pool.state.reservations)
        mark = index.snapshot.checkpoint()
        for key in keys:
            index.snapshot.release(key)
        assert len(heads) > 1 or _fits(gang, index.snapshot)
        for key in keys if alone else ():
            index.snapshot.hold(key, index.allocations[key[0]][key])
            assert not _fits(gang, index.snapshot)
            index.snapshot.release(key)
        index.snapshot.rollback(mark)


@settings(max_examples=40, deadline=None)
@given(pool=_pools(), numbers=_settings)
def test_what_is_proposed_is_taken_up_and_comes_to_rest(pool: VirtualPool, numbers: ElasticSettings) -> None:
    resized: dict[str, list[int]] = {}
    helped: set[str] = set()
    still = 0
    for _ in range(40):
        proposals = _look(pool, numbers)
        helped |= {one.beneficiary for one in proposals if one.beneficiary}
        for one in proposals:
            pool.publish(one.job_id, one.to_event())
        refused = pool.state.rejected_proposals
        decided = pool.settle()
        if any(one.beneficiary for one in proposals):
            assert pool.state.rejected_proposals == refused
        for one in decided:
            if isinstance(one, Resize):
                resized.setdefault(one.job_id, []).append(len(one.added) - len(one.removed))
            if isinstance(one, Place):
                helped.discard(one.job_id)
        assert not helped, "room was made for somebody who did not start"
        still = 0 if proposals or decided else still + 1
        if still == _STILL:
            break
        pool.after(_QUIET_S)
    else:
        raise AssertionError(f"sizes go to and fro: {resized}")


def _fits(gang: Gang, snapshot: Snapshot) -> bool:
    return isinstance(place(gang, snapshot, feasible=True), Placement)


def _look(pool: VirtualPool, numbers: ElasticSettings) -> list[ScaleProposal]:
    return plan(view_of_state(pool.state), pool.now, numbers)


def _held(pool: VirtualPool) -> object:
    snapshot = pool.state.index.snapshot
    active = [record.job_id for record in pool.records() if record.phase in ACTIVE_PHASES]
    return (
        dict(snapshot.holds),
        {name: snapshot.room(name) for name in snapshot.nodes},
        active,
        dict(pool.state.index.ledger.usage(("default",))),
    )
