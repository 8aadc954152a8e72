"""A state that is computed on demand equals the state that is computed with every event."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from muster_core.autoscaling import ElasticSettings, LazyPoolState, plan
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
    """A pool with running, waiting and ended jobs of different ages."""
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


def _lazy(pool: VirtualPool, *, computed_at: set[int]) -> LazyPoolState:
    lazy = LazyPoolState(pool=POOL)
    lazy.apply_queues(pool.specs)
    for node in pool.nodes.values():
        lazy.observe_node(NodeChanged(pool=POOL, node=node))
    for position, stored in enumerate(pool.stream):
        lazy.observe(stored)
        if position in computed_at:
            lazy.state()
    return lazy


def _contents(state: PoolState) -> tuple[object, ...]:
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
@given(pool=_pools(), computed_at=st.sets(st.integers(0, 200), max_size=12))
def test_a_state_computed_on_demand_equals_one_computed_with_every_event(
    pool: VirtualPool, computed_at: set[int]
) -> None:
    lazy = _lazy(pool, computed_at=computed_at)
    elastic = any(
        role.min != role.max
        for record in pool.state.records.values()
        if record.job is not None
        for role in record.job.roles
    )
    assert lazy.has_elastic_jobs is elastic

    reread = pool.reread()
    state = lazy.state()
    assert _contents(state) == _contents(reread)
    elastic_settings = ElasticSettings()
    assert plan(state, pool.now, elastic_settings) == plan(reread, pool.now, elastic_settings)


@settings(max_examples=40, deadline=None)
@given(pool=_pools(), share=st.floats(0, 1))
def test_a_repeated_event_changes_nothing(pool: VirtualPool, share: float) -> None:
    lazy = _lazy(pool, computed_at={int(share * len(pool.stream))})
    seen: list[StoredEvent] = list(pool.stream)
    assert [lazy.observe(stored) for stored in seen] == [None] * len(seen)
    assert _contents(lazy.state()) == _contents(pool.reread())


@settings(max_examples=40, deadline=None)
@given(pool=_pools(), share=st.floats(0, 1))
def test_a_restored_state_continues_with_later_events(pool: VirtualPool, share: float) -> None:
    restored = LazyPoolState(pool=POOL)
    restored.apply_queues(pool.specs)
    for node in pool.nodes.values():
        restored.observe_node(NodeChanged(pool=POOL, node=node))
    restored.restore(pool.saved())
    after = int(share * len(pool.stream))
    for stored in pool.stream[after:]:
        restored.observe(stored)
    assert _contents(restored.state()) == _contents(pool.restored(pool.saved(), after=after))
