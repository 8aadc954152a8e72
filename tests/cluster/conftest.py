from pathlib import Path

import pytest

from muster_testing.cluster.fixtures import cluster, cluster_tools, namespace, own_control_plane, real_node

__all__ = ["cluster", "cluster_tools", "namespace", "own_control_plane", "real_node"]

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all these tests in one worker, which starts one cluster for them."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("cluster"))
