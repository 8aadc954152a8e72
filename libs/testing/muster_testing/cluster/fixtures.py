"""Fixtures with a real cluster, which a ``conftest.py`` imports by name.

All tests of a session share ``cluster``, so each takes its own ``namespace``. ``own_control_plane`` belongs to one test, which may break
it. Without the programs the tests are skipped, or fail with ``MUSTER_TEST_CLUSTER=required``, which CI sets.
"""

import os
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from secrets import token_hex

import pytest
import pytest_asyncio

from muster_testing.cluster.cluster import Cluster
from muster_testing.cluster.control_plane import ControlPlane, control_plane_for_tests
from muster_testing.cluster.node import NODE_TOOLS, RealNode, may_run
from muster_testing.cluster.program import run_in_new_loop
from muster_testing.cluster.tools import PACKAGES, find, require

REQUIRED = "MUSTER_TEST_CLUSTER"


def need_tools(*names: str) -> None:
    """Skip the test if one of these programs is missing, or fail it if they are required."""
    if os.environ.get(REQUIRED) == "required":
        for name in names:
            require(name)
    elif missing := [name for name in names if find(name) is None]:
        pytest.skip(f"run make cluster-tools: {', '.join(missing)} not installed")


@pytest.fixture(scope="session")
def cluster_tools() -> None:
    """Check that a control plane can be started."""
    need_tools(*(name for name in PACKAGES if name != "kubelet"))


@pytest.fixture(scope="session")
def cluster(cluster_tools: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[Cluster]:
    """The cluster of the session: a given one, or a control plane of this machine."""
    with control_plane_for_tests(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest_asyncio.fixture
async def own_control_plane(cluster_tools: None, tmp_path: Path) -> AsyncGenerator[ControlPlane, None]:
    """A control plane for one test."""
    async with ControlPlane(tmp_path / "control-plane") as running:
        yield running


@pytest.fixture(scope="session")
def real_node(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Generator[RealNode]:
    """A real node in the session's cluster; skips the test without root or on a given cluster."""
    need_node_tools()
    if not isinstance(cluster, ControlPlane):
        pytest.skip("a given cluster has its own nodes")
    node = RealNode(cluster, folder=tmp_path_factory.mktemp("node"))
    run_in_new_loop(node.start())
    yield node
    run_in_new_loop(node.lose())


def need_node_tools() -> None:
    """Skip the test without root or without the programs of a node."""
    if not may_run():
        pytest.skip("a real node needs root")
    need_tools(*NODE_TOOLS)


@pytest_asyncio.fixture
async def namespace(cluster: Cluster) -> AsyncGenerator[str, None]:
    """A namespace for one test, deleted after it."""
    name = f"t{token_hex(6)}"
    await cluster.create_namespace(name)
    yield name
    await cluster.delete_namespace(name)
