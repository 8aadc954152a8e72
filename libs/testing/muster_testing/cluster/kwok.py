"""Many nodes: kwok plays their kubelets, and moves pods through their phases.

A pod runs as soon as its node is named and ends when it is deleted. Annotations make it behave like one that does something:

- ``kwok.muster.dev/run-for: 2s`` ends it after that time, with ``kwok.muster.dev/exit-code`` (``"0"`` unless told);
- ``kwok.muster.dev/reject: OutOfcpu`` fails it with that reason before it runs, as a kubelet does.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from muster_testing.cluster.program import Program, free_port
from muster_testing.cluster.rest import Rest
from muster_testing.cluster.tools import require
from muster_testing.cluster.views import Node, Taint

_STAGES = Path(__file__).with_name("stages.yaml")
_ANNOTATION = "kwok.x-k8s.io/node"
PLAYED = "fake"
"""The annotation's value of nodes that are played as long as the cluster is used."""

LEASE_S = 40
_READY_TIMEOUT_S = 60.0
_IN_FLIGHT = 16
_PODS_PER_NODE = 110


class Kwok:
    """The process that plays every node whose annotation of kwok's has this value, and renews its lease every fourth of ``lease_s``."""

    def __init__(
        self, *, kubeconfig: Path, folder: Path, played: str = PLAYED, lease_s: int = LEASE_S
    ) -> None:
        self._port = free_port()
        self._program = Program(
            "kwok",
            [
                str(require("kwok")),
                f"--kubeconfig={kubeconfig}",
                f"--config={_STAGES}",
                "--manage-all-nodes=false",
                f"--manage-nodes-with-annotation-selector={_ANNOTATION}={played}",
                f"--node-lease-duration-seconds={lease_s}",
                f"--server-address=127.0.0.1:{self._port}",
                "--node-ip=127.0.0.1",
                f"--node-port={self._port}",
            ],
            folder=folder,
        )

    async def start(self) -> None:
        """Start it, and wait until it answers; raises ``ProgramFailed``."""
        self._program.start()
        await self._program.until(self._answers, timeout_s=_READY_TIMEOUT_S)

    @property
    def pid(self) -> int | None:
        """Its process id; None when it does not run."""
        return self._program.pid

    def rest(self) -> None:
        """Have it do nothing until ``go_on``: no lease is renewed meanwhile, and no pod goes its way."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Have it play its nodes again."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill it."""
        self._program.end()

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

    async def _answers(self) -> bool:
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self._port}/healthz") as response,
            ):
                return response.ok
        except aiohttp.ClientError:
            return False


async def add_nodes(
    api: Rest,
    count: int,
    *,
    cpu: str,
    memory: str,
    gpus: int,
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    prefix: str,
    played: str = PLAYED,
) -> list[str]:
    """Create nodes, and wait until kwok has made them ready."""
    room = {"cpu": cpu, "memory": memory, "pods": str(_PODS_PER_NODE)}
    if gpus:
        room["nvidia.com/gpu"] = str(gpus)
    turns = asyncio.Semaphore(_IN_FLIGHT)

    async def add(name: str) -> None:
        async with turns:
            await api.create(
                "/api/v1/nodes", node(name, room=room, labels=labels, taints=taints, played=played)
            )

    names = [f"{prefix}-{index}" for index in range(count)]
    async with asyncio.timeout(_READY_TIMEOUT_S):
        await asyncio.gather(*(add(name) for name in names))
        missing = set(names)
        while missing:
            missing -= {each.metadata.name for each in await api.items("/api/v1/nodes", Node) if each.ready}
            if missing:
                await asyncio.sleep(0.1)
    return names


def node(
    name: str,
    *,
    room: Mapping[str, str],
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    played: str = PLAYED,
) -> dict[str, object]:
    """The object of a node that kwok plays."""
    return {
        "metadata": {
            "name": name,
            "annotations": {_ANNOTATION: played},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                **labels,
            },
        },
        "spec": {"taints": taints},
        "status": {"allocatable": dict(room), "capacity": dict(room)},
    }
