"""The process runtime: replicas as process groups of this machine, each with a shim that outlives pod-launcher.

``runtime`` is the ``ProcessRuntime``. ``replica_spec`` turns a launch into what a shim runs; ``fork_server`` and
``shim`` start and supervise replicas; ``state_files`` is the state on disk, and ``watcher`` observes it. ``access`` and
``exec_session`` run commands and open connections, ``remote_shell`` lets replicas run commands in one another, ``logs``
reads output and progress. ``nodes``, ``ports`` and ``processes`` describe the machine.
"""

from muster_runtimes.process.access import AsyncDescriptor
from muster_runtimes.process.nodes import NodeSpecError, parse_node, parse_nodes, this_machine
from muster_runtimes.process.ports import NoFreePortError
from muster_runtimes.process.processes import boot_id, open_process, stat
from muster_runtimes.process.runtime import ProcessOptions, ProcessRuntime, StillRunningError
from muster_runtimes.process.state_files import (
    ShimState,
    Stage,
    StateDirectory,
    UnsafeNameError,
    end_session,
    open_shim,
    read_state,
    request_stop,
)

__all__ = [
    "AsyncDescriptor",
    "NoFreePortError",
    "NodeSpecError",
    "ProcessOptions",
    "ProcessRuntime",
    "ShimState",
    "Stage",
    "StateDirectory",
    "StillRunningError",
    "UnsafeNameError",
    "boot_id",
    "end_session",
    "open_process",
    "open_shim",
    "parse_node",
    "parse_nodes",
    "read_state",
    "request_stop",
    "stat",
    "this_machine",
]
