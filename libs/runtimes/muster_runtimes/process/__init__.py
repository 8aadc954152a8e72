"""The process runtime: replicas as process groups on this machine, each with a shim that outlives the launcher."""

from muster_runtimes.process.addresses import NoPortLeftError
from muster_runtimes.process.layout import UnsafeNameError
from muster_runtimes.process.nodes import NodeSpecError, parse_node, parse_nodes, this_machine
from muster_runtimes.process.removal import StillRunningError
from muster_runtimes.process.runtime import ProcessOptions, ProcessRuntime

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
