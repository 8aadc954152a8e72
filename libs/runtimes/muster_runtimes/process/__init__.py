"""The process runtime: replicas as process groups of this machine, each with a shim that outlives pod-launcher.

``runtime`` is the ``ProcessRuntime``. ``replica_spec`` turns a launch into what a shim runs; ``fork_server`` and
``shim`` start and supervise replicas; ``state_files`` is the state on disk, and ``watcher`` observes it. ``access`` and
``exec_session`` run commands and open connections, ``remote_shell`` lets replicas run commands in one another, ``logs``
reads output and progress. ``nodes``, ``ports`` and ``processes`` describe the machine. ``users`` has the user ids of jobs, and
``namespace_lock`` keeps pod-launchers of several containers apart.
"""

from muster_runtimes.process.access import AsyncDescriptor as AsyncDescriptor
from muster_runtimes.process.namespace_lock import NamespaceInUseError as NamespaceInUseError
from muster_runtimes.process.nodes import (
    NodeSpecError as NodeSpecError,
    parse_node as parse_node,
    parse_nodes as parse_nodes,
    this_machine as this_machine,
)
from muster_runtimes.process.ports import NoFreePortError as NoFreePortError
from muster_runtimes.process.processes import boot_id as boot_id, open_process as open_process, stat as stat
from muster_runtimes.process.runtime import (
    ProcessOptions as ProcessOptions,
    ProcessRuntime as ProcessRuntime,
    StillRunningError as StillRunningError,
)
from muster_runtimes.process.state_files import (
    ShimState as ShimState,
    Stage as Stage,
    StateDirectory as StateDirectory,
    UnsafeNameError as UnsafeNameError,
    end_session as end_session,
    open_shim as open_shim,
    read_state as read_state,
    request_stop as request_stop,
)
from muster_runtimes.process.users import (
    UserIdsError as UserIdsError,
    parse_user_ids as parse_user_ids,
    require_capabilities as require_capabilities,
)
