"""Placement of any gangs on any pool: within capacity, by every rule, all or nothing, and repeatable."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings, strategies as st

from muster_core.events import Assignment
from muster_core.models import (
    Job,
    Node,
    PlacementPolicy,
    ReplicaRecord,
    Resources,
    Role,
    Strategy,
    Taint,
    Template,
)
from muster_core.scheduling.placement import (
    Placement,
    Shortfall,
    Snapshot,
    allocation_of,
    gang_of,
    place,
    place_more,
    to_reason,
)
from muster_core.scheduling.placement.free_capacity import NVLINK_DOMAINS_LABEL, nvlink_domains_of

ZONE = "zone"
PODS = {"app": "train"}

requests = st.builds(
    Resources, cpu=st.sampled_from([500, 1000, 3000]), gpu=st.sampled_from([0, 300, 500, 1000, 2000])
)
policies = st.builds(
    PlacementPolicy,
    strategy=st.sampled_from(Strategy),
    topology=st.sampled_from(["", ZONE]),
    topology_required=st.booleans(),
    gpu_topology=st.booleans(),
)


@st.composite
def pools(draw: st.DrawFn) -> tuple[Node, ...]:
    """Up to nine nodes in up to three zones, some with NVLink domains, some tainted."""
    return tuple(
        Node(
            name=f"n{number}",
            allocatable=Resources(cpu=draw(st.integers(1, 12)) * 1000, gpu=gpu * 1000),
            labels={
                **({ZONE: zone} if (zone := draw(st.sampled_from(["", "a", "b", "c"]))) else {}),
                **({NVLINK_DOMAINS_LABEL: "0-1_2-3"} if gpu == 4 and draw(st.booleans()) else {}),
            },
            taints=draw(
                st.sampled_from([(), (), (Taint(key="x", effect="PreferNoSchedule"),), (Taint(key="x"),)])
            ),
        )
        for number in range(draw(st.integers(1, 9)))
        for gpu in (draw(st.sampled_from([0, 1, 2, 4])),)
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Workers under some policy, with or without a ps and rules about other replicas."""
    rule = draw(st.sampled_from(["", "", "anti-affinity", "spread"]))
    minimum = draw(st.integers(1, 5))
    worker = Template(requests=draw(requests), labels=PODS, pod=_rules(rule))
    roles = [
        Role(
            name="worker",
            min=minimum,
            replicas=minimum + (extra := draw(st.integers(0, 5))),
            max=minimum + extra,
            template=worker,
        )
    ]
    if draw(st.booleans()):
        ps = Template(requests=Resources(cpu=1000))
        roles.insert(0, Role(name="ps", min=1, replicas=1, max=1, template=ps))
    return Job(name="train", roles=tuple(roles), placement=draw(policies))


def _rules(rule: str) -> dict[str, object]:
    selector = {"topologyKey": ZONE, "labelSelector": {"matchLabels": PODS}}
    if rule == "anti-affinity":
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}
        return {"spec": {"affinity": {"podAntiAffinity": terms}}}
    if rule == "spread":
        constraint = {**selector, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        return {"spec": {"topologySpreadConstraints": [constraint]}}
    return {}


bounded = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@bounded
@given(nodes=pools(), queue=st.lists(jobs(), min_size=1, max_size=4))
def test_placed_gangs_fit_and_keep_their_rules(nodes: tuple[Node, ...], queue: list[Job]) -> None:
    snapshot = Snapshot(nodes)
    for number, job in enumerate(queue):
        before = {name: snapshot.free_capacity(name) for name in snapshot.nodes}
        gang = gang_of(job)
        found = place(gang, snapshot)
        assert place(gang, snapshot) == found
        assert place(gang, _again(nodes, snapshot)) == found
        assert {name: snapshot.free_capacity(name) for name in snapshot.nodes} == before
        if isinstance(found, Shortfall):
            assert found.placeable <= found.needed
            assert found.fits_now < found.needed
            assert to_reason(found).message
            continue
        assert gang.minimum <= len(found.replicas) <= gang.full
        _allocate(snapshot, job, found.replicas, str(number))
        assert snapshot.overcommitted() == []
        _check(job, found, snapshot)


def _again(nodes: tuple[Node, ...], snapshot: Snapshot) -> Snapshot:
    """The same pool without caches, built in another order."""
    again = Snapshot(reversed(nodes))
    again.allocate_all(reversed(list(snapshot.allocations.items())))
    return again


def _allocate(snapshot: Snapshot, job: Job, replicas: Iterable[Assignment], job_id: str = "j") -> None:
    snapshot.allocate_all(
        ((job_id, 1, one.role, one.index), allocation_of(job, one.role, one.index, one.node, one.gpus))
        for one in replicas
    )


def _check(job: Job, found: Placement, snapshot: Snapshot) -> None:
    placed = [(one, snapshot.nodes[one.node]) for one in found.replicas]
    assert all(taint.effect != "NoSchedule" for _, node in placed for taint in node.taints)
    if job.placement.topology and job.placement.topology_required:
        assert len({node.labels[ZONE] for _, node in placed}) == 1
    for one, node in placed:
        role = job.role(one.role)
        assert role is not None
        wanted = role.template_of(one.index).requests.gpu
        assert len(one.gpus) == -(-wanted // 1000)
        if job.placement.gpu_topology and wanted > 1000 and nvlink_domains_of(node):
            assert any(set(one.gpus) <= set(domain) for domain in nvlink_domains_of(node))
    spec = job.roles[-1].template.pod.get("spec", {})
    zones = Counter(node.labels.get(ZONE) for one, node in placed if one.role == "worker")
    if "affinity" in spec:
        assert all(number == 1 for zone, number in zones.items() if zone is not None)
    if "topologySpreadConstraints" in spec:
        assert None not in zones


@bounded
@given(nodes=pools(), gpu=st.sampled_from([0, 1000]), replicas=st.integers(1, 8))
def test_spread_gangs_differ_by_one_between_nodes_with_capacity(
    nodes: tuple[Node, ...], gpu: int, replicas: int
) -> None:
    snapshot = Snapshot(nodes)
    template = Template(requests=Resources(cpu=1000, gpu=gpu))
    worker = Role(name="worker", min=replicas, replicas=replicas, max=replicas, template=template)
    policy = PlacementPolicy(strategy=Strategy.SPREAD)
    job = Job(name="train", roles=(worker,), placement=policy)
    found = place(gang_of(job), snapshot)
    if not isinstance(found, Placement):
        return
    numbers = Counter(one.node for one in found.replicas)
    _allocate(snapshot, job, found.replicas)
    for node in nodes:
        open_ = all(taint.effect != "NoSchedule" for taint in node.taints)
        capacity = snapshot.free_capacity(node.name)
        if open_ and capacity.free[0] >= 1000 and (not gpu or 1000 in capacity.gpus):
            assert max(numbers.values()) - numbers[node.name] <= 1


@settings(bounded, max_examples=60)
@given(nodes=pools(), queue=st.lists(jobs(), min_size=2, max_size=6), data=st.data())
def test_cached_state_does_not_change_placements(
    nodes: tuple[Node, ...], queue: list[Job], data: st.DataObject
) -> None:
    """After any allocations, releases, rollbacks and node changes, the placement is that of a new snapshot."""
    snapshot = Snapshot(nodes)
    known = {node.name: node for node in nodes}
    for number, job in enumerate(queue):
        mark = snapshot.checkpoint()
        found = place(gang_of(job), snapshot)
        if isinstance(found, Placement):
            _allocate(snapshot, job, found.replicas, str(number))
        if data.draw(st.booleans()):
            snapshot.rollback(mark)
        else:
            snapshot.commit(mark)
        change = data.draw(st.sampled_from(["", "release", "node", "gone"]))
        name = data.draw(st.sampled_from(sorted(known)))
        if change == "release" and snapshot.allocations:
            snapshot.release(data.draw(st.sampled_from(sorted(snapshot.allocations))))
        elif change == "node":
            labels = {ZONE: data.draw(st.sampled_from("abc"))}
            known[name] = msgspec.structs.replace(known[name], labels=labels)
            snapshot.put_node(known[name])
        elif (
            change == "gone"
            and len(known) > 1
            and not any(h.node == name for h in snapshot.allocations.values())
        ):
            del known[name]
            snapshot.drop_node(name)
        for other in queue:
            fresh = _again(tuple(known.values()), snapshot)
            assert place(gang_of(other), snapshot) == place(gang_of(other), fresh)


def test_the_hash_seed_does_not_change_placements() -> None:
    """Place the same queue on the same pool in processes with different hash seeds."""
    outputs = [
        subprocess.run(
            [sys.executable, str(Path(__file__).with_name("placement_program.py"))],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            timeout=100,
        ).stdout
        for seed in ("0", "1", "4711")
    ]
    assert outputs[0].count(b"\n") > 50
    assert all(one == other for one, other in pairwise(outputs))


@bounded
@given(nodes=pools(), job=jobs(), more=st.integers(1, 6))
def test_growth_keeps_the_rules_of_the_start(nodes: tuple[Node, ...], job: Job, more: int) -> None:
    snapshot = Snapshot(nodes)
    worker = job.roles[-1]
    elastic = msgspec.structs.replace(worker, max=worker.max + more)
    job = msgspec.structs.replace(job, roles=(*job.roles[:-1], elastic))
    found = place(gang_of(job), snapshot)
    if not isinstance(found, Placement):
        return
    replicas = [
        ReplicaRecord(role=one.role, index=one.index, attempt=1, generation=1, node=one.node, gpus=one.gpus)
        for one in found.replicas
    ]
    _allocate(snapshot, job, found.replicas)
    before = dict(snapshot.allocations)
    added = place_more(job, replicas, "worker", elastic.max, snapshot)
    assert snapshot.allocations == before
    assert added == place_more(job, replicas, "worker", elastic.max, _again(nodes, snapshot))
    _allocate(snapshot, job, added)
    assert snapshot.overcommitted() == []
    whole = msgspec.structs.replace(found, replicas=(*found.replicas, *added))
    _check(job, whole, snapshot)
