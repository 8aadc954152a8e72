"""A program that places a fixed queue of gangs of every kind on a fixed pool and prints the placements."""

from __future__ import annotations

import itertools
import sys

import msgspec

from muster_core.models import Job, Node, PlacementPolicy, Resources, Role, Strategy, Template
from muster_core.scheduling.placement import (
    Placement,
    Snapshot,
    allocation_of,
    demand_of,
    gang_of,
    place,
    to_reason,
    workload_of,
)

LABELS = {"app": "train", "team": "a"}


def main() -> None:
    """Place, allocate and print each gang."""
    snapshot = Snapshot(
        Node(
            name=f"n{number:02d}",
            allocatable=Resources(
                cpu=(8 + number % 5) * 1000,
                gpu=number % 5 * 1000,
                extended={f"example.com/{name}": number for name in "xyz"},
            ),
            labels={"zone": f"z{number % 3}", "rack": f"r{number % 7}"},
        )
        for number in range(40)
    )
    workload = workload_of(demand_of(Resources(cpu=1000, gpu=gpu)) for gpu in (300, 500, 1000, 1000, 2000))
    gpus, strategies, topologies = (0, 300, 1000, 2000), tuple(Strategy), ("", "zone", "rack")
    kinds = itertools.product(gpus, strategies, topologies, ("", "anti-affinity", "spread"))
    for number, (gpu, strategy, topology, rule) in enumerate(kinds):
        job = _job(gpu, PlacementPolicy(strategy=strategy, topology=topology), rule)
        found = place(gang_of(job), snapshot, workload=workload if number % 2 else None)
        if isinstance(found, Placement):
            snapshot.allocate_all(
                (
                    (str(number), 1, one.role, one.index),
                    allocation_of(job, one.role, one.index, one.node, one.gpus),
                )
                for one in found.replicas
            )
            sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
        else:
            sys.stdout.write(to_reason(found).message + "\n")


def _job(gpu: int, policy: PlacementPolicy, rule: str) -> Job:
    selector = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "train"}}}
    spec: dict[str, object] = {}
    if rule == "anti-affinity":
        terms = {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}
        spec = {"affinity": {"podAntiAffinity": terms}}
    elif rule == "spread":
        constraint = {**selector, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        spec = {"topologySpreadConstraints": [constraint]}
    template = Template(
        requests=Resources(cpu=500, gpu=gpu, extended={"example.com/y": 1}),
        labels=LABELS,
        pod={"spec": spec} if spec else {},
    )
    ps = Template(requests=Resources(cpu=1000), labels=LABELS)
    roles = (
        Role(name="ps", min=1, replicas=1, max=1, template=ps),
        Role(name="worker", min=1, replicas=4, max=4, template=template),
    )
    return Job(name="train", roles=roles, placement=policy)


if __name__ == "__main__":
    main()
