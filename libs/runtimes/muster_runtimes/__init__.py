"""Runtimes: what starts, stops and observes replicas.

``protocols`` defines what a runtime offers. ``muster_runtimes.process`` runs replicas as process groups of this machine,
``muster_runtimes.kubernetes`` as pods of a cluster; each is imported on its own, so that one does not load the other's dependencies.
"""

from muster_runtimes.protocols import (
    AccessibleRuntime as AccessibleRuntime,
    ExecCommand as ExecCommand,
    ExecResult as ExecResult,
    ExecSession as ExecSession,
    JobFiles as JobFiles,
    JobHolder as JobHolder,
    Launch as Launch,
    LogChunk as LogChunk,
    LogSource as LogSource,
    NodeSource as NodeSource,
    Observation as Observation,
    OutputChunk as OutputChunk,
    PortConnection as PortConnection,
    ProgressReader as ProgressReader,
    ProgressReport as ProgressReport,
    ReplicaAccess as ReplicaAccess,
    ReplicaControl as ReplicaControl,
    ReplicaId as ReplicaId,
    ReplicaObserver as ReplicaObserver,
    ReplicaUnreachable as ReplicaUnreachable,
    Runtime as Runtime,
    RuntimeCheck as RuntimeCheck,
    TerminalSize as TerminalSize,
)
