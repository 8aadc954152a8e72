"""kwok: simulates the kubelets of many nodes and moves their pods through their phases.

A pod runs as soon as it has a node, and ends when it is deleted. Annotations change that:

- ``kwok.muster.dev/run-for: 2s`` ends it after that time, with ``kwok.muster.dev/exit-code`` (default ``"0"``);
- ``kwok.muster.dev/reject: OutOfcpu`` fails it with that reason before it runs, like a kubelet that does not admit it.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from muster_testing.cluster.program import ChildProgram, free_port
from muster_testing.cluster.rest import Rest
from muster_testing.cluster.tools import require
from muster_testing.cluster.views import Node, Taint

_STAGES = Path(__file__).with_name("stages.yaml")
_ANNOTATION = "kwok.x-k8s.io/node"
SIMULATED = "fake"
"""The default value of kwok's node annotation."""

LEASE_S = 40
_READY_TIMEOUT_S = 60.0
_CONCURRENCY = 16
_PODS_PER_NODE = 110


class Kwok:
    """A kwok process that manages the nodes with this value of its annotation; it renews their leases every quarter of ``lease_s``."""

    def __init__(
        self, *, kubeconfig: Path, folder: Path, simulated: str = SIMULATED, lease_s: int = LEASE_S
    ) -> None:
        self._port = free_port()
        self._program = ChildProgram(
            "kwok",
            [
                str(require("kwok")),
                f"--kubeconfig={kubeconfig}",
                f"--config={_STAGES}",
                "--manage-all-nodes=false",
                f"--manage-nodes-with-annotation-selector={_ANNOTATION}={simulated}",
                f"--node-lease-duration-seconds={lease_s}",
                f"--server-address=127.0.0.1:{self._port}",
                "--node-ip=127.0.0.1",
                f"--node-port={self._port}",
            ],
            folder=folder,
        )

    async def start(self) -> None:
        """Start kwok, and wait until it responds; raises ``ClusterProgramFailed``."""
        self._program.start()
        await self._program.until(self._responds, timeout_s=_READY_TIMEOUT_S)

    @property
    def pid(self) -> int | None:
        """Its process id; None if it is not running."""
        return self._program.pid

    def suspend(self) -> None:
        """Suspend kwok until ``resume``: no lease is renewed, and no pod changes."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume kwok."""
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Kill kwok."""
        self._program.end()

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            os.kill(self.pid, number)

    async def _responds(self) -> bool:
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
    simulated: str = SIMULATED,
) -> list[str]:
    """Create nodes, and wait until kwok has made them ready."""
    capacity = {"cpu": cpu, "memory": memory, "pods": str(_PODS_PER_NODE)}
    if gpus:
        capacity["nvidia.com/gpu"] = str(gpus)
    turns = asyncio.Semaphore(_CONCURRENCY)

    async def add(name: str) -> None:
        async with turns:
            await api.create(
                "/api/v1/nodes",
                node(name, capacity=capacity, labels=labels, taints=taints, simulated=simulated),
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
    capacity: Mapping[str, str],
    labels: Mapping[str, str],
    taints: Sequence[Taint],
    simulated: str = SIMULATED,
) -> dict[str, object]:
    """Return the manifest of a simulated node."""
    return {
        "metadata": {
            "name": name,
            "annotations": {_ANNOTATION: simulated},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                **labels,
            },
        },
        "spec": {"taints": taints},
        "status": {"allocatable": dict(capacity), "capacity": dict(capacity)},
    }
