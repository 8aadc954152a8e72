"""A state that is computed on demand equals the state that is computed with every event."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hypothesis import given, settings, strategies as st

from muster_core.autoscaling import ElasticSettings, LazyPoolState, plan
from muster_core.events import NodeChanged
from muster_core.lifecycle import ACTIVE_PHASES
from muster_core.models import JobRecord, QueueSpec, Resources
from muster_core.scheduling import PoolState
from muster_testing.pool import POOL, ScenarioPool


@st.composite
def _pools(draw: st.DrawFn) -> ScenarioPool:
    """A pool with running, waiting and ended jobs of different ages."""
    pool = ScenarioPool()
    pool.queues(QueueSpec(name="default"))
    for number in range(draw(st.integers(1, 3))):
        pool.add_node(f"n{number}", cpu=draw(st.integers(2, 8)), gpu=0)
    for number in range(draw(st.integers(1, 8))):
        size = draw(st.integers(1, 6))
        most = size + draw(st.integers(0, 3))
        pool.submit(pool.job(f"j{number:02}", size, most=most, worker=Resources(cpu=1000), servers=0))
        if draw(st.booleans()):
            pool.after(draw(st.sampled_from([1, 40, 100])))
        pool.settle()
        running = pool.in_phase(*ACTIVE_PHASES)
        if running and draw(st.booleans()):
            pool.finish(draw(st.sampled_from([record.job_id for record in running])))
            pool.settle()
    return pool


def _lazy(
    pool: ScenarioPool,
    *,
    computed_at: Collection[int] = (),
    records: Iterable[JobRecord] = (),
    after: int = 0,
) -> LazyPoolState:
    lazy = LazyPoolState(pool=POOL)
    lazy.apply_queues(pool.specs)
    for node in pool.nodes.values():
        lazy.observe_node(NodeChanged(pool=POOL, node=node))
    lazy.restore(records)
    for position, stored in enumerate(pool.stream[after:]):
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
    pool: ScenarioPool, computed_at: set[int]
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
def test_a_repeated_event_changes_nothing(pool: ScenarioPool, share: float) -> None:
    lazy = _lazy(pool, computed_at={int(share * len(pool.stream))})
    assert not any(lazy.observe(stored) for stored in pool.stream)
    assert _contents(lazy.state()) == _contents(pool.reread())


@settings(max_examples=40, deadline=None)
@given(pool=_pools(), share=st.floats(0, 1))
def test_a_restored_state_continues_with_later_events(pool: ScenarioPool, share: float) -> None:
    after = int(share * len(pool.stream))
    restored = _lazy(pool, records=pool.saved(), after=after)
    assert _contents(restored.state()) == _contents(pool.restored(pool.saved(), after=after))
