"""The release index and the reservation cache equal what is computed from scratch."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from hypothesis import HealthCheck, given, settings, strategies as st

from muster_core import events
from muster_core.lifecycle import ACTIVE_PHASES
from muster_core.models import (
    Job,
    JobKind,
    Node,
    Phase,
    QueueSpec,
    Reason,
    ReplicaState,
    Resources,
    Role,
    RunPolicy,
    Template,
)
from muster_core.scheduling.reservations import (
    ExpectedRelease,
    ReleaseTimeline,
    RemainingReleases,
    ReservationCache,
)
from muster_testing.pool import SECOND, VirtualPool

NODES = 3


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A rigid gang, perhaps with a known name, a deadline, or as a service."""
    size = draw(st.integers(1, 3))
    requests = Resources(cpu=1000, gpu=draw(st.sampled_from([1, 1, 2, 4])) * 1000)
    role = Role(name="worker", min=size, replicas=size, max=size, template=Template(requests=requests))
    return Job(
        name=draw(st.sampled_from(["", "", "known"])),
        kind=draw(st.sampled_from([JobKind.BATCH, JobKind.BATCH, JobKind.BATCH, JobKind.SERVICE])),
        run=RunPolicy(active_deadline_s=draw(st.sampled_from([None, None, None, 20, 100]))),
        roles=(role,),
    )


steps = st.lists(
    st.one_of(
        jobs(),
        st.sampled_from(["launch", "finish", "cancel", "leave", "drain", "wait", "look"]),
        st.sampled_from(["launch", "wait", "look", "look"]),
    ),
    min_size=8,
    max_size=30,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps)
def test_cached_reservations_equal_planned_ones(steps: list[Job | str]) -> None:
    pool = pool_of_equals()
    for number, step in enumerate(steps):
        take(pool, number, step)
        decided, reservations = pool.state.decide(pool.now), pool.state.reservations
        pool.state.reservation_cache = ReservationCache()
        assert pool.state.decide(pool.now) == decided
        assert pool.state.reservations == reservations
        pool.commit(decided)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps)
def test_the_release_timeline_equals_the_records(steps: list[Job | str]) -> None:
    pool = pool_of_equals()
    for number, step in enumerate(steps):
        take(pool, number, step)
        pool.decide()
        ending = list(ReleaseTimeline(pool.state.index, pool.state.runtime_estimates, pool.now))
        assert ending == sorted(expected(pool), key=order)
        assert list(RemainingReleases(ending, pool.state.index.snapshot.allocations)) == ending
        assert pool.state.index.releases.terminating == sorted(
            record.job_id
            for record in pool.state.records.values()
            if any(one.terminating and not one.ended for one in record.replicas)
        )


def pool_of_equals() -> VirtualPool:
    """Three nodes of four GPUs, with a starvation threshold of five seconds."""
    pool = VirtualPool()
    for number in range(NODES):
        pool.node(node(number))
    pool.queues(QueueSpec(name="default", starvation_after_s=5))
    return pool


def node(number: int, *, unschedulable: bool = False) -> Node:
    return Node(name=f"n{number}", allocatable=Resources(cpu=16_000, gpu=4_000), unschedulable=unschedulable)


def take(pool: VirtualPool, number: int, step: Job | str) -> None:
    """Apply a step."""
    match step:
        case Job():
            pool.submit(renamed(step, number), job_id=f"j{number:03}")
        case "launch":
            pool.launch()
        case "finish" | "cancel":
            outcome = events.Outcome.SUCCEEDED if step == "finish" else events.Outcome.CANCELLED
            for record in pool.in_phase(Phase.RUNNING)[:2]:
                if step == "finish":
                    pool.change(record.job_id, ReplicaState.EXITED, record.replicas, exit_code=0)
                finished = events.JobFinished(outcome=outcome, reason=Reason(code=outcome), attempt=1)
                pool.publish(record.job_id, finished)
        case "leave":
            for record in list(pool.state.records.values()):
                terminating = [one for one in record.replicas if one.terminating and not one.ended]
                pool.change(record.job_id, ReplicaState.EXITED, terminating, exit_code=0)
        case "drain":
            drained = not pool.nodes["n0"].unschedulable
            pool.node(node(0, unschedulable=drained))
        case "wait":
            pool.now += 4 * SECOND
        case _:
            pass


def renamed(job: Job, number: int) -> Job:
    """Give the job a unique name if it has none."""
    return msgspec.structs.replace(job, name=job.name or f"job-{number}")


def expected(pool: VirtualPool) -> Iterator[ExpectedRelease]:
    """Every release on completion, computed from all running jobs."""
    for job_id, allocations in pool.state.index.allocations.items():
        record = pool.state.index.records[job_id]
        service = record.job is None or record.job.kind is JobKind.SERVICE
        if record.phase in ACTIVE_PHASES and not service:
            yield ExpectedRelease(
                record,
                tuple(allocations.items()),
                pool.state.runtime_estimates.expected_end(record, pool.now),
            )


def order(release: ExpectedRelease) -> tuple[bool, int, str]:
    """Known ends first, then the oldest."""
    known = release.at is not None
    return (
        not known,
        release.at if release.at is not None else release.record.placed_at,
        release.record.job_id,
    )
