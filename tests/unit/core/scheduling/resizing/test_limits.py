"""The limits of a queue and its ancestors bound the growth of a role."""

from __future__ import annotations

from muster_core.models import QueueSpec, ResourceLimits, Resources, Role, Template
from muster_core.scheduling.resizing import size_within_limits
from muster_core.scheduling.state import Transaction
from muster_testing.pool import ScenarioPool

TWO_GPUS = Resources(cpu=1000, gpu=2000)


def allowed(pool: ScenarioPool, job_id: str, target: int, *, role: str = "worker", size: int = 2) -> int:
    """The size of a role that the limits allow."""
    transaction = Transaction(index=pool.state.index, feasible={}, now=pool.now)
    return size_within_limits(pool.record(job_id), role, target, transaction, size=size)


def test_without_a_limit_every_size_is_allowed(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 2, most=8))
    assert allowed(pool, "a", 8) == 8


def test_growth_ends_where_the_next_replica_would_exceed_the_limit(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="default", limit=ResourceLimits(gpu=5000)))
    pool.run(pool.job("a", 2, most=8))
    assert allowed(pool, "a", 8) == 5


def test_the_usage_of_other_jobs_counts_against_the_limit(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="default", limit=ResourceLimits(gpu=5000)))
    pool.run(pool.job("a", 2, most=8))
    pool.run(pool.job("b", 2))
    assert allowed(pool, "a", 8) == 3


def test_the_limit_of_the_parent_queue_counts(pool: ScenarioPool) -> None:
    above = QueueSpec(name="above", limit=ResourceLimits(gpu=3000))
    pool.queues(above, QueueSpec(name="below", parent="above", limit=ResourceLimits(gpu=6000)))
    pool.run(pool.job("a", 2, most=8, queue="below"))
    assert allowed(pool, "a", 8) == 3


def test_above_its_limit_a_job_keeps_its_size(pool: ScenarioPool) -> None:
    pool.run(pool.job("a", 4, most=8))
    pool.queues(QueueSpec(name="default", limit=ResourceLimits(gpu=3000)))
    assert allowed(pool, "a", 8, size=4) == 4


def test_growth_counts_the_largest_replica_of_a_role(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="default", limit=ResourceLimits(gpu=6000)))
    dear = {7: Template(requests=TWO_GPUS)}
    template = Template(requests=Resources(cpu=1000, gpu=1000))
    role = Role(name="worker", replicas=2, min=1, max=8, template=template, overrides=dear)
    pool.run(pool.job("a", 2, servers=0, roles=(role,)))
    assert allowed(pool, "a", 8) == 4


def test_a_resource_that_a_role_does_not_request_does_not_limit_it(pool: ScenarioPool) -> None:
    pool.queues(QueueSpec(name="default", limit=ResourceLimits(gpu=2000)))
    pool.run(pool.job("a", 2, most=8))
    assert allowed(pool, "a", 3, role="ps", size=1) == 3
