"""A real Kubernetes cluster for tests: a control plane of this machine, many simulated nodes, and a real one.

``ControlPlane`` starts etcd, an API server and a controller manager in a folder of their own; its nodes are played by kwok, and
where root allows ``RealNode`` joins one that runs containers. ``Cluster`` is what they have in common with a cluster that is given.
"""

from muster_testing.cluster.choice import control_plane_for_tests
from muster_testing.cluster.cluster import Cluster
from muster_testing.cluster.control_plane import ControlPlane
from muster_testing.cluster.program import ProgramFailed
from muster_testing.cluster.rest import Rest, RestError
from muster_testing.cluster.tools import MissingTool

__all__ = [
    "Cluster",
    "ControlPlane",
    "MissingTool",
    "ProgramFailed",
    "Rest",
    "RestError",
    "control_plane_for_tests",
]
