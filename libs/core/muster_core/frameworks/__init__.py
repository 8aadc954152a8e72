"""What replicas need from their framework: addresses, variables, files, and the start order.

``environments`` is the entry point; one module for each framework gives its variables, from the ``gang`` and the runtime's
``context``. ``roles`` knows which roles compute and which start last.
"""

from muster_core.frameworks.context import (
    FRAMEWORK_PORTS,
    Addresses,
    ConfigFile,
    FrameworkPort,
    RemoteShell,
    RuntimeContext,
    local_addresses,
    port_of,
    possible_replicas,
    service_addresses,
)
from muster_core.frameworks.environments import (
    accepts_remote_commands,
    effective_template,
    environment,
    files,
    has_files,
    idles,
    is_idle,
    membership,
)
from muster_core.frameworks.gang import gpus_of, is_elastic
from muster_core.frameworks.roles import computes, start_order_reason, starts_after

__all__ = [
    "FRAMEWORK_PORTS",
    "Addresses",
    "ConfigFile",
    "FrameworkPort",
    "RemoteShell",
    "RuntimeContext",
    "accepts_remote_commands",
    "computes",
    "effective_template",
    "environment",
    "files",
    "gpus_of",
    "has_files",
    "idles",
    "is_elastic",
    "is_idle",
    "local_addresses",
    "membership",
    "port_of",
    "possible_replicas",
    "service_addresses",
    "start_order_reason",
    "starts_after",
]
