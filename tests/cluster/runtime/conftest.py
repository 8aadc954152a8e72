"""A namespace, a pool and a simulated node per test."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest_asyncio

from muster_testing.cluster import Cluster

sys.path.insert(0, str(Path(__file__).parent))

from kubernetes_harness import KubernetesHarness


@pytest_asyncio.fixture
async def harness(cluster: Cluster, namespace: str, tmp_path: Path) -> KubernetesHarness:
    """The harness of a test."""
    return KubernetesHarness(cluster=cluster, namespace=namespace, path=tmp_path)


@pytest_asyncio.fixture
async def node(cluster: Cluster, namespace: str) -> AsyncGenerator[str]:
    """The name of a simulated node."""
    (name,) = await cluster.add_kwok_nodes(1, cpu="8", memory="32Gi", prefix=namespace)
    yield name
    await cluster.remove_nodes([name])
