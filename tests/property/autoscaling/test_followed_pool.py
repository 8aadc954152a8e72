"""A pool that is worked out now and then is the pool that is worked out with every event."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster_core.autoscaling import FollowedPool, plan, view_of_state
from muster_core.events import NodeChanged, StoredEvent
from muster_core.lifecycle import ACTIVE_PHASES
from muster_core.models import Job, Node, QueueSpec, Resources, Role, Template
from muster_core.scheduling import PoolState
from muster_testing.pool import POOL, VirtualPool


def _job(number: int, *, size: int, most: int) -> Job:
    template = Template(requests=Resources(cpu=1000))
    return Job(
        name=f"j{number:02}",
        roles=(Role(name="worker", replicas=size, min=1, max=most, template=template),),
    )


@st.composite
def _pools(draw: st.DrawFn) -> VirtualPool:
    """A pool with a history: jobs came, some have ended, and some have been there for long."""
    pool = VirtualPool()
    pool.queues(QueueSpec(name="default"))
    for number in range(draw(st.integers(1, 3))):
        pool.node(Node(name=f"n{number}", allocatable=Resources(cpu=1000 * draw(st.integers(2, 8)))))
    for number in range(draw(st.integers(1, 8))):
        size = draw(st.integers(1, 6))
        pool.submit(_job(number, size=size, most=size + draw(st.integers(0, 3))))
        if draw(st.booleans()):
            pool.after(draw(st.sampled_from([1, 40, 100])))
        pool.settle()
        running = pool.in_phase(*ACTIVE_PHASES)
        if running and draw(st.booleans()):
            pool.finish(draw(st.sampled_from([record.job_id for record in running])))
            pool.settle()
    return pool


def _follow(pool: VirtualPool, *, looks: set[int]) -> FollowedPool:
    followed = FollowedPool(pool=POOL)
    followed.apply_queues(pool.specs)
    for node in pool.nodes.values():
        followed.observe_node(NodeChanged(pool=POOL, node=node))
    for place, stored in enumerate(pool.stream):
        followed.observe(stored)
        if place in looks:
            followed.state()
    return followed


def _told(state: PoolState) -> tuple[object, ...]:
    index = state.index
    return (
        dict(index.records),
        index.allocations,
        index.waiting,
        index.unknown_queue,
        index.draining,
        index.delayed,
        index.disrupted,
        index.starting,
        index.snapshot.free_total(),
        state.queue_report(),
        state.decided_at,
        state.violations(),
    )


@settings(max_examples=80, deadline=None)
@given(pool=_pools(), looks=st.sets(st.integers(0, 200), max_size=12))
def test_looking_now_and_then_ends_in_the_same_pool(pool: VirtualPool, looks: set[int]) -> None:
    followed = _follow(pool, looks=looks)
    elastic = any(
        role.min != role.max
        for record in pool.state.records.values()
        if record.job is not None
        for role in record.job.roles
    )
    assert followed.may_change is elastic

    reread = pool.reread()
    state = followed.state()
    assert _told(state) == _told(reread)
    assert plan(view_of_state(state), pool.now) == plan(view_of_state(reread), pool.now)


@settings(max_examples=40, deadline=None)
@given(pool=_pools(), share=st.floats(0, 1))
def test_a_event_that_is_seen_again_changes_nothing(pool: VirtualPool, share: float) -> None:
    followed = _follow(pool, looks={int(share * len(pool.stream))})
    seen: list[StoredEvent] = list(pool.stream)
    assert [followed.observe(stored) for stored in seen] == [None] * len(seen)
    assert _told(followed.state()) == _told(pool.reread())


@settings(max_examples=40, deadline=None)
@given(pool=_pools(), share=st.floats(0, 1))
def test_it_starts_from_records_and_reads_on(pool: VirtualPool, share: float) -> None:
    heir = FollowedPool(pool=POOL)
    heir.apply_queues(pool.specs)
    for node in pool.nodes.values():
        heir.observe_node(NodeChanged(pool=POOL, node=node))
    heir.restore(pool.saved())
    after = int(share * len(pool.stream))
    for stored in pool.stream[after:]:
        heir.observe(stored)
    assert _told(heir.state()) == _told(pool.restored(pool.saved(), after=after))
