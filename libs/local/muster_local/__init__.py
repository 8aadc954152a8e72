"""Muster on this machine: `muster up`, and the same system for tests and benchmarks to embed.

Commands: `command` (`muster up`), `dead_letters` (`muster dead-letters`), `provision` (the broker's streams).
System: `up` (a session of `muster up`), `system` (everything that it runs), `programs` (each as a command with an environment),
`processes` (supervision), `pdeathsig` (ends a program with its supervisor), `directory`, `endpoints`, `replicas`, `jobs`.
Output: `log_lines`, `output`. `traces` is the trace sink, a program of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster_local.directory import DirectoryInUse as DirectoryInUse
    from muster_local.endpoints import Endpoints as Endpoints, read_endpoints as read_endpoints
    from muster_local.pdeathsig import use_batch_scheduling as use_batch_scheduling
    from muster_local.processes import LocalError as LocalError
    from muster_local.programs import (
        ExternalBroker as ExternalBroker,
        LocalOptions as LocalOptions,
        Spans as Spans,
        local_address as local_address,
    )
    from muster_local.provision import ProvisionSettings as ProvisionSettings, provision_bus as provision_bus
    from muster_local.system import LocalSystem as LocalSystem

_MODULES = {
    "DirectoryInUse": "directory",
    "Endpoints": "endpoints",
    "ExternalBroker": "programs",
    "LocalError": "processes",
    "LocalOptions": "programs",
    "LocalSystem": "system",
    "ProvisionSettings": "provision",
    "Spans": "programs",
    "local_address": "programs",
    "provision_bus": "provision",
    "read_endpoints": "endpoints",
    "use_batch_scheduling": "pdeathsig",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: each program of `muster up` imports only the modules that it needs."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
