"""A real Kubernetes cluster for tests: a control plane of this machine, many simulated nodes, and a real one.

``ControlPlane`` starts etcd, an API server and a controller manager. kwok simulates its nodes, and with root a ``RealNode`` runs containers
(``node``, inside ``node_sandbox``). ``Cluster`` is the interface of a control plane and of an existing cluster.
"""

from muster_testing.cluster.cluster import Cluster as Cluster
from muster_testing.cluster.control_plane import (
    ControlPlane as ControlPlane,
    control_plane_for_tests as control_plane_for_tests,
)
from muster_testing.cluster.program import ClusterProgramFailed as ClusterProgramFailed
from muster_testing.cluster.rest import Rest as Rest, RestError as RestError
from muster_testing.go_programs import MissingTool as MissingTool
