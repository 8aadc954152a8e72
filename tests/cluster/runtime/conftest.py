"""A namespace and a pool of the test's own, with a simulated node."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio

from muster_testing.cluster import Cluster

sys.path.insert(0, str(Path(__file__).parent))

from runtime_room import KubeRoom


@pytest_asyncio.fixture
async def room(cluster: Cluster, namespace: str, tmp_path: Path) -> KubeRoom:
    """Where runtimes are made."""
    return KubeRoom(cluster=cluster, namespace=namespace, path=tmp_path)


@pytest_asyncio.fixture
async def node(cluster: Cluster, namespace: str) -> AsyncGenerator[str]:
    """The name of a node that kwok plays."""
    (name,) = await cluster.add_kwok_nodes(1, cpu="8", memory="32Gi", prefix=namespace)
    yield name
    await cluster.remove_nodes([name])
