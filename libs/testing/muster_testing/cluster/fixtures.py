"""Fixtures with a real cluster. A ``conftest.py`` that wants them imports them by name.

``cluster`` serves a whole session, so its tests take a ``namespace`` of their own and leave the cluster running;
``own_control_plane`` belongs to one test, which may do to it what it likes.

Where the programs are missing such a test is skipped, unless ``MUSTER_TEST_CLUSTER=required``: so that whoever changes a page of
the documentation need not compile Kubernetes, and CI cannot pass without it.
"""

import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from secrets import token_hex

import pytest
import pytest_asyncio

from muster_testing.cluster.choice import control_plane_for_tests
from muster_testing.cluster.cluster import Cluster
from muster_testing.cluster.control_plane import ControlPlane
from muster_testing.cluster.loops import run_beside
from muster_testing.cluster.node import NODE_TOOLS, RealNode, may_run
from muster_testing.cluster.tools import PACKAGES, find, require

__all__ = ["cluster", "cluster_tools", "namespace", "own_control_plane", "real_node"]

REQUIRED = "MUSTER_TEST_CLUSTER"


def need_tools(*names: str) -> None:
    """Skip the test that asks when one of these programs is missing, or fail it where they are required."""
    if os.environ.get(REQUIRED) == "required":
        for name in names:
            require(name)
    elif missing := [name for name in names if find(name) is None]:
        pytest.skip(f"make cluster-tools: {', '.join(missing)} not on this machine")


@pytest.fixture(scope="session")
def cluster_tools() -> None:
    """Nothing but the certainty that a control plane can be started."""
    need_tools(*(name for name in PACKAGES if name != "kubelet"))


@pytest.fixture(scope="session")
def cluster(cluster_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    """The cluster of the session: the one that was given, or a control plane of this machine."""
    with control_plane_for_tests(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest_asyncio.fixture
async def own_control_plane(cluster_tools: None, tmp_path: Path) -> AsyncGenerator[ControlPlane, None]:
    """A control plane of the test's own."""
    async with ControlPlane(tmp_path / "control-plane") as running:
        yield running


@pytest.fixture(scope="session")
def real_node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Generator[RealNode]:
    """A real node of the session's cluster; the test is skipped where one cannot be: without root, or on a given cluster."""
    need_node_tools()
    if not isinstance(cluster, ControlPlane):
        pytest.skip("a cluster that was given has nodes of its own")
    node = RealNode(cluster, folder=tmp_path_factory.mktemp("node"))
    run_beside(node.start())
    yield node
    run_beside(node.lose())


def need_node_tools() -> None:
    """Skip the test that asks where a real node cannot be: without root, or without its programs."""
    if not may_run():
        pytest.skip("a real node needs root")
    need_tools(*NODE_TOOLS)


@pytest_asyncio.fixture
async def namespace(cluster: Cluster) -> AsyncGenerator[str, None]:
    """A namespace that no other test has; it is deleted with all that is in it."""
    name = f"t{token_hex(6)}"
    await cluster.create_namespace(name)
    yield name
    await cluster.delete_namespace(name)
