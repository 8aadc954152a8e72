"""A large cluster under stress: nodes are deleted, drained and stop reporting, and foreign pods come and go.

Every gang ends, and no node is overcommitted.

The size is that of a development machine; ``make test-chaos`` runs 500 nodes and 300 gangs.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from chaos_system import ChaosSystem, chaos_system_on, gang, phases
from pod_history import placements_in

from muster_core.models import Resources
from muster_testing.cluster import ControlPlane
from muster_testing.cluster.cluster import UnresponsiveNodes
from muster_testing.cluster.rest import Rest, RestError
from muster_testing.cluster.views import Pod

SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "20"))
NODES = int(os.environ.get("MUSTER_CHAOS_NODES", "100"))
GANGS = int(os.environ.get("MUSTER_CHAOS_GANGS", "60"))
GRACE_S = 40
"""Hundreds of nodes renew their leases every ten seconds; with a shorter limit a busy machine would lose some of them."""

KNOWN_AFTER_S = 20.0
"""Foreign pods this much older than a placement must be known to it; for later ones the kubelet decides."""

OTHERS = "/api/v1/namespaces/others/pods"
OFFER = Resources(cpu=4000, memory=32 * 2**30, gpu=4000)


class Shape(msgspec.Struct, frozen=True):
    """The size of a gang and the requests of its replicas."""

    workers: int
    cpu: str
    gpus: int = 0
    masters: int = 0
    framework: str = "pytorch"


SHAPES = (
    Shape(2, "1"),
    Shape(8, "2", 1),
    Shape(16, "500m"),
    Shape(4, "4", 4, framework="plain"),
    Shape(24, "1", framework="plain"),
    Shape(6, "1500m", 2, masters=1),
)


@pytest.mark.timeout(900)
async def test_every_gang_completes_and_no_node_is_overcommitted(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    silent_count = max(NODES // 30, 1)
    async with ControlPlane(tmp_path / "control-plane", node_grace_s=GRACE_S) as plane:
        nodes = await plane.add_kwok_nodes(NODES - silent_count, cpu="4", memory="32Gi", gpus=4)
        async with (
            UnresponsiveNodes.added(
                plane, silent_count, cpu="4", memory="32Gi", gpus=4, folder=tmp_path
            ) as silent,
            chaos_system_on(
                plane, tmp_path, is_direct=True, kube_node_lost_seconds="5", log_bytes="0"
            ) as chaos,
        ):
            await place_foreign_pods(chaos, rng.sample(nodes, NODES // 5))
            others = asyncio.create_task(churn_foreign_pods(chaos, nodes, rng))
            submitting = asyncio.create_task(chaos.submit(documents(rng)))
            await asyncio.sleep(3)
            silent.stop_heartbeats()
            await disrupt_nodes(chaos, rng.sample(nodes, 2 * NODES // 30), rng)
            ids = list((await submitting).values())
            ended = await chaos.ends(ids, within_s=600)
            others.cancel()
            await asyncio.gather(others, return_exceptions=True)
            await chaos.delete(ids)
            await chaos.until_no_objects_remain()

    offered = dict.fromkeys([*nodes, *silent.names], OFFER)
    assert phases(ended) == {"PHASE_SUCCEEDED": GANGS}
    assert chaos.history.overcommitted(offered, known_after_s=None) == []
    placed = placements_in(chaos.system.log_text())
    assert len(placed) >= GANGS
    assert chaos.history.overcommitted(offered, known_after_s=KNOWN_AFTER_S, placed=placed) == []
    assert chaos.history.runs_with_several_pods() == {}
    # The test is only meaningful if the cluster was full and gangs were evicted and placed again.
    assert chaos.history.most_at_once() > NODES
    assert max(chaos.history.attempts().values()) > 1


def documents(rng: random.Random) -> dict[str, str]:
    """Documents of gangs of mixed shapes, by name."""
    made: dict[str, str] = {}
    for number in range(GANGS):
        shape = SHAPES[number % len(SHAPES)]
        name = f"gang-{number}"
        made[name] = gang(
            name,
            run_for=f"{rng.uniform(2, 5):.1f}s",
            workers=shape.workers,
            masters=shape.masters,
            cpu=shape.cpu,
            gpus=shape.gpus,
            framework=shape.framework,
        )
    return made


async def disrupt_nodes(chaos: ChaosSystem, victims: Sequence[str], rng: random.Random) -> None:
    """Delete or drain one node after another."""
    async with chaos.cluster.connect() as api:
        for number, node in enumerate(victims):
            await asyncio.sleep(rng.uniform(0.1, 0.5))
            if number % 2:
                await drain(api, node)
            else:
                await chaos.cluster.remove_nodes([node])


async def drain(api: Rest, node: str) -> None:
    """Cordon a node and evict its pods, like kubectl."""
    await api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    for pod in await api.items("/api/v1/pods", Pod, fieldSelector=f"spec.nodeName={node}"):
        name = pod.metadata.name
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        # The response is a status, and the pod may be gone.
        with suppress(msgspec.ValidationError, RestError):
            await api.create(f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{name}/eviction", eviction)


async def place_foreign_pods(chaos: ChaosSystem, nodes: Sequence[str]) -> None:
    """Create a foreign pod on each of the nodes, and wait until the scheduler knows them."""
    await chaos.cluster.create_namespace("others")
    async with chaos.cluster.connect() as api:
        for number, node in enumerate(nodes):
            await api.create(OTHERS, foreign_pod(f"standing-{number}", node, cpu="2500m"))
    async with asyncio.timeout(60):
        while sum([1 async for node in chaos.muster.nodes() if node.foreign.cpu_milli]) < len(nodes):
            await asyncio.sleep(0.2)


def foreign_pod(name: str, node: str, *, cpu: str) -> dict[str, object]:
    """A foreign pod."""
    container = {"name": "c", "image": "localhost/none:1", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": name}, "spec": spec}


async def churn_foreign_pods(chaos: ChaosSystem, nodes: Sequence[str], rng: random.Random) -> None:
    """Create and delete foreign pods until cancelled."""
    async with chaos.cluster.connect() as api:
        standing: list[str] = []
        number = 0
        while True:
            number += 1
            name = f"other-{number}"
            pod = foreign_pod(name, rng.choice(nodes), cpu=rng.choice(["250m", "1", "3"]))
            with suppress(RestError):
                await api.create(OTHERS, pod)
                standing.append(name)
            if len(standing) > NODES // 10:
                with suppress(RestError):
                    await api.delete(f"{OTHERS}/{standing.pop(0)}")
            await asyncio.sleep(0.1)
