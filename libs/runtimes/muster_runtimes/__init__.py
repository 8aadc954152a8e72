"""Runtimes: what starts, stops and observes replicas.

``protocols`` defines what a runtime offers. ``muster_runtimes.process`` runs replicas as process groups of this machine,
``muster_runtimes.kubernetes`` as pods of a cluster; each is imported on its own, so that one does not load the other's dependencies.
"""

from muster_runtimes.protocols import (
    AccessibleRuntime,
    ExecCommand,
    ExecResult,
    ExecSession,
    JobFiles,
    Launch,
    LogChunk,
    LogSource,
    NodeSource,
    Observation,
    OutputChunk,
    PortConnection,
    ProgressReader,
    ProgressReport,
    ReplicaAccess,
    ReplicaControl,
    ReplicaId,
    ReplicaObserver,
    ReplicaUnreachable,
    Runtime,
    TerminalSize,
)

__all__ = [
    "AccessibleRuntime",
    "ExecCommand",
    "ExecResult",
    "ExecSession",
    "JobFiles",
    "Launch",
    "LogChunk",
    "LogSource",
    "NodeSource",
    "Observation",
    "OutputChunk",
    "PortConnection",
    "ProgressReader",
    "ProgressReport",
    "ReplicaAccess",
    "ReplicaControl",
    "ReplicaId",
    "ReplicaObserver",
    "ReplicaUnreachable",
    "Runtime",
    "TerminalSize",
]
