"""What replicas need from their framework: addresses, variables, files, and the start order.

``environments`` is the entry point; one module for each framework gives its variables, from the ``gang`` and the runtime's
``context``. ``roles`` knows which roles compute and which start last.
"""

from muster_core.frameworks.context import (
    FRAMEWORK_PORTS as FRAMEWORK_PORTS,
    Addresses as Addresses,
    ConfigFile as ConfigFile,
    FrameworkPort as FrameworkPort,
    RemoteShell as RemoteShell,
    RuntimeContext as RuntimeContext,
    local_addresses as local_addresses,
    port_of as port_of,
    possible_replicas as possible_replicas,
    service_addresses as service_addresses,
)
from muster_core.frameworks.environments import (
    accepts_remote_commands as accepts_remote_commands,
    effective_template as effective_template,
    environment as environment,
    files as files,
    has_files as has_files,
    idles as idles,
    is_idle as is_idle,
    membership as membership,
)
from muster_core.frameworks.gang import gpus_of as gpus_of, is_elastic as is_elastic
from muster_core.frameworks.roles import (
    computes as computes,
    start_order_reason as start_order_reason,
    starts_after as starts_after,
)
