"""Which cluster the tests use: one of their own, unless another is given."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from muster_testing.cluster.access import read_kubeconfig
from muster_testing.cluster.cluster import Cluster
from muster_testing.cluster.control_plane import ControlPlane
from muster_testing.cluster.loops import run_beside

GIVEN = "MUSTER_TEST_KUBECONFIG"


@contextmanager
def control_plane_for_tests(folder: Path) -> Generator[Cluster]:
    """A cluster for a whole session: the one of ``MUSTER_TEST_KUBECONFIG``, or a control plane in ``folder``.

    Of a given cluster only what the tests added is taken away at the end.
    """
    if not (given := os.environ.get(GIVEN)):
        with ControlPlane(folder) as control_plane:
            yield control_plane
        return
    cluster = Cluster(access=read_kubeconfig(Path(given), folder=folder), folder=folder)
    try:
        yield cluster
    finally:
        run_beside(cluster.leave())
