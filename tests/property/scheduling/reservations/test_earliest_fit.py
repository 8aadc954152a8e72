"""The earliest fit counted node by node equals the one found by applying releases one after the other."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings, strategies as st

from muster_core.models import Job, JobRecord, Node, Resources, Role, Template
from muster_core.scheduling.placement import (
    Allocation,
    AllocationKey,
    Gang,
    Placement,
    Snapshot,
    demand_of,
    find_placement,
    gang_of,
)
from muster_core.scheduling.reservations import ExpectedRelease, earliest_fit, has_equal_replicas

NODES = 3
GIB = 2**30


@st.composite
def requests(draw: st.DrawFn) -> Resources:
    """The requests of a replica: CPU alone, whole GPUs, or a share of one."""
    gpu = draw(st.sampled_from([0, 500, 1000, 1000, 2000, 3000]))
    return Resources(cpu=draw(st.integers(1, 4)) * 1000, gpu=gpu, gpu_memory=draw(st.sampled_from([0, GIB])))


@st.composite
def node(draw: st.DrawFn, number: int) -> Node:
    """A node with GPUs, perhaps cordoned, with another label, or with foreign pods."""
    return Node(
        name=f"n{number}",
        allocatable=Resources(cpu=10_000, gpu=4_000),
        gpu_memory=2 * GIB,
        labels={"sort": draw(st.sampled_from(["new", "new", "old"]))},
        unschedulable=draw(st.sampled_from([False, False, False, True])),
        foreign=Resources(gpu=draw(st.sampled_from([0, 0, 1000, 1500]))),
    )


@st.composite
def full_pool(draw: st.DrawFn) -> tuple[Snapshot, list[ExpectedRelease]]:
    """A pool with running jobs, and their releases in some order."""
    snapshot = Snapshot([draw(node(number)) for number in range(NODES)])
    releases: list[ExpectedRelease] = []
    for number, size in enumerate(draw(st.lists(st.integers(1, 3), max_size=12))):
        asked = draw(requests())
        found = find_placement(gang(size, asked), snapshot)
        if found is not None:
            record = JobRecord(job_id=f"j{number}", applied_sequence=0)
            allocations: list[tuple[AllocationKey, Allocation]] = [
                ((record.job_id, 1, one.role, one.index), Allocation(one.node, demand_of(asked), one.gpus))
                for one in found.replicas
            ]
            snapshot.allocate_all(allocations)
            releases.append(ExpectedRelease(record, tuple(allocations), None))
    return snapshot, draw(st.permutations(releases))


def gang(size: int, asked: Resources, *, sort: str = "") -> Gang:
    """A rigid gang of equal replicas, with a node selector if ``sort`` is set."""
    selector = {"sort": sort} if sort else {}
    role = Role(
        name="worker",
        replicas=size,
        min=size,
        max=size,
        template=Template(requests=asked, node_selector=selector),
    )
    return gang_of(Job(name="waits", roles=(role,)))


def after(
    releases: Sequence[ExpectedRelease], waits: Gang, snapshot: Snapshot, on: Sequence[str]
) -> Placement | None:
    """Place the gang with the releases applied on these nodes."""
    mark = snapshot.checkpoint()
    for release in releases:
        for key, allocation in release.allocations:
            if allocation.node in on:
                snapshot.release(key)
    found = find_placement(waits, snapshot)
    snapshot.rollback(mark)
    return found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pool=full_pool(), size=st.integers(1, 5), asked=requests(), sort=st.sampled_from(["", "new"]))
def test_the_count_based_fit_equals_the_exhaustive_one(
    pool: tuple[Snapshot, list[ExpectedRelease]], size: int, asked: Resources, sort: str
) -> None:
    snapshot, releases = pool
    waits = gang(size, asked, sort=sort)
    assert has_equal_replicas(waits)
    everywhere = list(snapshot.nodes)
    tried = ((n, after(releases[:n], waits, snapshot, everywhere)) for n in range(len(releases) + 1))
    first = next(((number, found) for number, found in tried if found is not None), None)
    fit = earliest_fit(waits, releases, snapshot)
    assert (fit.number if fit else None) == (first[0] if first else None)
    if fit is not None and first is not None:
        assert after(releases[: fit.number], waits, snapshot, sorted(fit.nodes)) == first[1]
