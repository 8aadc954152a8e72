"""The environment of replicas for each framework: names, addresses, variables and files; and the start order."""

from muster_core.frameworks.addresses import listed_replicas, local_addresses, service_addresses
from muster_core.frameworks.computing import computes
from muster_core.frameworks.environment import (
    environment,
    files,
    has_files,
    keeps_still,
    running_template,
    takes_commands,
)
from muster_core.frameworks.membership import membership
from muster_core.frameworks.order import held_back, starts_after
from muster_core.frameworks.peers import is_elastic
from muster_core.frameworks.ports import FRAMEWORK_PORTS, FrameworkPort, port_of
from muster_core.frameworks.site import Addresses, ConfigFile, RemoteShell, Site

__all__ = [
    "FRAMEWORK_PORTS",
    "Addresses",
    "ConfigFile",
    "FrameworkPort",
    "RemoteShell",
    "Site",
    "computes",
    "environment",
    "files",
    "has_files",
    "held_back",
    "is_elastic",
    "keeps_still",
    "listed_replicas",
    "local_addresses",
    "membership",
    "port_of",
    "running_template",
    "service_addresses",
    "starts_after",
    "takes_commands",
]
