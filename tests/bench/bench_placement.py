"""Placement rate in pools of 500 to 50,000 nodes, and the time of a diagnosis.

Pure: one core, no service, no bus. Seconds are CPU time of the process, so other programs do not count. Gangs are placed
and allocated, so the pool fills up meanwhile.
"""

import gc
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from measuring import Measurement

from muster_core.models import Job, Node, PlacementPolicy, Resources, Role, Taint, Template, Toleration
from muster_core.scheduling.placement import (
    Allocation,
    AllocationKey,
    Gang,
    Placement,
    Shortfall,
    Snapshot,
    gang_of,
    place,
    to_reason,
)

NAMES = (
    "placement_pods_per_s.500",
    "placement_pods_per_s.5000",
    "placement_pods_per_s.50000",
    "placement_big_gang_pods_per_s.5000",
    "explain_ms.5000",
)

_GIB = 2**30
_RACK = "example.com/rack"
_NODES_PER_RACK = 16
_GPUS = 8
_MOST_PODS = 30_000
_BIG = 1_000


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Fill pools of three sizes, each of which may cost ten times the previous one; ``root`` is unused."""
    del root
    rates = {
        number: _fill(number, rounds=1 if quick or number > 5_000 else 3) for number in (500, 5_000, 50_000)
    }
    budgets = {5_000: max(35_000, rates[500] / 10), 50_000: rates[5_000] / 10}
    return [
        *(
            Measurement(
                name=f"placement_pods_per_s.{number}",
                value=rate,
                unit="pods/s",
                budget=budgets.get(number),
                better="more",
                note="gangs of 3 of nine shapes, placed and allocated",
            )
            for number, rate in rates.items()
        ),
        Measurement(
            name="placement_big_gang_pods_per_s.5000",
            value=_big_gangs(5_000),
            unit="pods/s",
            budget=500_000,
            better="more",
            note="gangs of 1,000, one after the other; the allocation is not counted",
        ),
        Measurement(
            name="explain_ms.5000",
            value=_explanations(5_000),
            unit="ms",
            budget=20,
            note="the slowest shape, in a full pool",
        ),
    ]


def _pool(number: int) -> Snapshot:
    """Return racks of 16 nodes; every second rack is of the newer kind, every fourth tainted."""
    return Snapshot(_node(position) for position in range(number))


def _node(position: int) -> Node:
    rack = position // _NODES_PER_RACK
    return Node(
        name=f"node-{position:05d}",
        allocatable=Resources(cpu=96_000, memory=768 * _GIB, gpu=_GPUS * 1000),
        labels={
            _RACK: f"rack-{rack:04d}",
            "example.com/gpu": "new" if rack % 2 else "old",
            "kubernetes.io/hostname": f"node-{position:05d}",
        },
        taints=(Taint(key="example.com/reserved"),) if rack % 4 == 0 else (),
    )


def _shapes() -> list[Gang]:
    """Return gangs of 3: sizes that fit badly together, with and without selector, affinity, toleration and topology."""
    return [
        _gang(gpu=1, cpu=6, required=True),
        _gang(gpu=1, cpu=11, selector="new"),
        _gang(gpu=2, cpu=12, tolerant=True),
        _gang(gpu=2, cpu=20, selector="old", required=True, tolerant=True),
        _gang(gpu=4, cpu=24, required=True),
        _gang(gpu=4, cpu=40, affinity="new"),
        _gang(gpu=1, cpu=8, servers=1),
        _gang(gpu=3, cpu=16, required=True, tolerant=True),
        _gang(gpu=0, cpu=4),
    ]


def _gang(
    *,
    gpu: int,
    cpu: int,
    servers: int = 0,
    selector: str = "",
    affinity: str = "",
    required: bool = False,
    tolerant: bool = False,
    size: int = 3,
) -> Gang:
    expression = {"key": "example.com/gpu", "operator": "In", "values": [affinity]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    template = Template(
        requests=Resources(cpu=cpu * 1000, memory=cpu * 4 * _GIB, gpu=gpu * 1000),
        node_selector={"example.com/gpu": selector} if selector else {},
        node_affinity={"requiredDuringSchedulingIgnoredDuringExecution": terms} if affinity else {},
        tolerations=(Toleration(key="example.com/reserved", operator="Exists"),) if tolerant else (),
    )
    roles = [_role("worker", size - servers, template)]
    if servers:
        roles.insert(0, _role("ps", servers, Template(requests=Resources(cpu=2000, memory=8 * _GIB))))
    policy = PlacementPolicy(topology=_RACK, topology_required=required)
    return gang_of(Job(name="bench", roles=tuple(roles), placement=policy))


def _role(name: str, number: int, template: Template) -> Role:
    return Role(name=name, replicas=number, min=number, max=number, template=template)


def _fill(number: int, *, rounds: int) -> float:
    """Return pods per second while an empty pool fills up, the best of several rounds."""
    return max(_rate(_pool(number), _shapes()) for _ in range(rounds))


def _rate(snapshot: Snapshot, shapes: Sequence[Gang]) -> float:
    placed = turn = 0
    blocked: set[int] = set()
    gc.collect()
    began = time.process_time()
    while placed < _MOST_PODS and len(blocked) < len(shapes):
        position = turn % len(shapes)
        turn += 1
        if position in blocked:
            continue
        found = place(shapes[position], snapshot, feasible=True)
        if not isinstance(found, Placement):
            blocked.add(position)
            continue
        snapshot.allocate_all(_holds(turn, shapes[position], found))
        placed += len(found.replicas)
    return placed / (time.process_time() - began)


def _holds(turn: int, gang: Gang, placement: Placement) -> Iterable[tuple[AllocationKey, Allocation]]:
    demands = {role.name: role.request.demand for role in gang.roles}
    job = f"job-{turn}"
    return [
        ((job, 1, one.role, one.index), Allocation(one.node, demands[one.role], one.gpus))
        for one in placement.replicas
    ]


def _big_gangs(number: int) -> float:
    """Return pods per second over gangs of 1,000 until nothing fits."""
    snapshot = _pool(number)
    gang = _gang(gpu=1, cpu=6, size=_BIG)
    placed, spent, turn = 0, 0.0, 0
    while True:
        gc.collect()
        began = time.process_time()
        found = place(gang, snapshot, feasible=True)
        took = time.process_time() - began
        if not isinstance(found, Placement):
            return placed / spent
        turn += 1
        placed, spent = placed + len(found.replicas), spent + took
        snapshot.allocate_all(_holds(turn, gang, found))


def _explanations(number: int) -> float:
    """Return the longest diagnosis of a shape in milliseconds, in a pool that has no capacity for any."""
    snapshot = _pool(number)
    shapes = _shapes()
    for position, gang in enumerate(shapes):
        turn = 0
        while isinstance(found := place(gang, snapshot, feasible=True), Placement):
            turn += 1
            snapshot.allocate_all(_holds(1_000_000 * (position + 1) + turn, gang, found))
    worst = 0.0
    for gang in shapes:
        began = time.process_time()
        found = place(gang, snapshot, feasible=True)
        if isinstance(found, Shortfall):
            to_reason(found)
        worst = max(worst, time.process_time() - began)
    return 1000 * worst
