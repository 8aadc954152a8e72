"""The process runtime: replicas as process groups on this machine, each with a shim that outlives the launcher."""

from muster_pod_launcher.process.addresses import NoPortLeftError
from muster_pod_launcher.process.layout import UnsafeNameError
from muster_pod_launcher.process.nodes import NodeSpecError, parse_node, parse_nodes, this_machine
from muster_pod_launcher.process.removal import StillRunningError
from muster_pod_launcher.process.runtime import ProcessOptions, ProcessRuntime

__all__ = [
    "NoPortLeftError",
    "NodeSpecError",
    "ProcessOptions",
    "ProcessRuntime",
    "StillRunningError",
    "UnsafeNameError",
    "parse_node",
    "parse_nodes",
    "this_machine",
]
