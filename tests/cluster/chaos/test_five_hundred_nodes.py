"""A large cluster on a bad day: nodes vanish, are drained and fall silent, pods of others come and go.

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
from chaos_room import World, gang, phases, world_on
from history import placements_in

from muster_core.models import Resources
from muster_testing.cluster import ControlPlane
from muster_testing.cluster.rest import Rest, RestError
from muster_testing.cluster.silent import SilentNodes
from muster_testing.cluster.views import Pod

SEED = int(os.environ.get("MUSTER_CHAOS_SEED", "20"))
NODES = int(os.environ.get("MUSTER_CHAOS_NODES", "100"))
GANGS = int(os.environ.get("MUSTER_CHAOS_GANGS", "60"))
GRACE_S = 40
"""Hundreds of nodes are heard of every ten seconds; with less patience a machine that plays them all would lose some for no reason."""

KNOWN_AFTER_S = 20.0
"""What others had put on a node so long before a gang was placed was known. Of what comes later the node has the last word."""

OTHERS = "/api/v1/namespaces/others/pods"
OFFER = Resources(cpu=4000, memory=32 * 2**30, gpu=4000)


class Shape(msgspec.Struct, frozen=True):
    """A gang: how many of what."""

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
async def test_every_gang_ends_and_no_node_is_overcommitted(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    silent_count = max(NODES // 30, 1)
    async with ControlPlane(tmp_path / "control-plane", node_grace_s=GRACE_S) as plane:
        nodes = await plane.add_kwok_nodes(NODES - silent_count, cpu="4", memory="32Gi", gpus=4)
        async with (
            SilentNodes.added(plane, silent_count, cpu="4", memory="32Gi", gpus=4, folder=tmp_path) as silent,
            world_on(plane, tmp_path, is_direct=True, kube_node_lost_seconds="5", log_bytes="0") as world,
        ):
            await stand(world, chance.sample(nodes, NODES // 5))
            others = asyncio.create_task(come_and_go(world, nodes, chance))
            submitting = asyncio.create_task(world.submit(documents(chance)))
            await asyncio.sleep(3)
            silent.fall_silent()
            await disturb(world, chance.sample(nodes, 2 * NODES // 30), chance)
            ids = list((await submitting).values())
            ended = await world.ends(ids, within_s=600)
            others.cancel()
            await asyncio.gather(others, return_exceptions=True)
            await world.delete(ids)
            await world.until_nothing_is_left()

    offered = dict.fromkeys([*nodes, *silent.names], OFFER)
    assert phases(ended) == {"PHASE_SUCCEEDED": GANGS}
    assert world.history.overcommitted(offered, known_after_s=None) == []
    placed = placements_in(world.system.log_text())
    assert len(placed) >= GANGS
    assert world.history.overcommitted(offered, known_after_s=KNOWN_AFTER_S, placed=placed) == []
    assert world.history.doubled() == {}
    # Otherwise nothing was shown: the cluster was full, and gangs were taken down and placed again.
    assert world.history.most_at_once() > NODES
    assert max(world.history.attempts().values()) > 1


def documents(chance: random.Random) -> dict[str, str]:
    """Gangs of mixed shapes by their names."""
    made: dict[str, str] = {}
    for number in range(GANGS):
        shape = SHAPES[number % len(SHAPES)]
        name = f"gang-{number}"
        made[name] = gang(
            name,
            run_for=f"{chance.uniform(2, 5):.1f}s",
            workers=shape.workers,
            masters=shape.masters,
            cpu=shape.cpu,
            gpus=shape.gpus,
            framework=shape.framework,
        )
    return made


async def disturb(world: World, victims: Sequence[str], chance: random.Random) -> None:
    """One node after the other is scrapped, or drained."""
    async with world.cluster.connect() as api:
        for number, node in enumerate(victims):
            await asyncio.sleep(chance.uniform(0.1, 0.5))
            if number % 2:
                await drain(api, node)
            else:
                await world.cluster.remove_nodes([node])


async def drain(api: Rest, node: str) -> None:
    """As kubectl does it: cordon, then evict what is there."""
    await api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
    for pod in await api.items("/api/v1/pods", Pod, fieldSelector=f"spec.nodeName={node}"):
        name = pod.metadata.name
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        # The answer is a status and no object; and the pod may have gone meanwhile.
        with suppress(msgspec.ValidationError, RestError):
            await api.create(f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{name}/eviction", eviction)


async def stand(world: World, nodes: Sequence[str]) -> None:
    """Others have a pod on each of the nodes, until the end, and the scheduler knows it."""
    await world.cluster.create_namespace("others")
    async with world.cluster.connect() as api:
        for number, node in enumerate(nodes):
            await api.create(OTHERS, someone(f"standing-{number}", node, cpu="2500m"))
    async with asyncio.timeout(60):
        while sum([1 async for node in world.muster.nodes() if node.foreign.cpu_milli]) < len(nodes):
            await asyncio.sleep(0.2)


def someone(name: str, node: str, *, cpu: str) -> dict[str, object]:
    """A pod that is not Muster's."""
    container = {"name": "c", "image": "localhost/none:1", "resources": {"requests": {"cpu": cpu}}}
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"metadata": {"name": name}, "spec": spec}


async def come_and_go(world: World, nodes: Sequence[str], chance: random.Random) -> None:
    """Others put pods on nodes and take them away again, until cancelled."""
    async with world.cluster.connect() as api:
        standing: list[str] = []
        number = 0
        while True:
            number += 1
            name = f"other-{number}"
            pod = someone(name, chance.choice(nodes), cpu=chance.choice(["250m", "1", "3"]))
            with suppress(RestError):
                await api.create(OTHERS, pod)
                standing.append(name)
            if len(standing) > NODES // 10:
                with suppress(RestError):
                    await api.delete(f"{OTHERS}/{standing.pop(0)}")
            await asyncio.sleep(0.1)
