"""The Python client of Muster.

    from muster import Client

    with Client() as muster:
        (job,) = muster.submit(Path("job.yaml"))
        print(muster.wait(job.job_id).status.phase)

Names are loaded on first use: the ``muster`` command starts from this package too, and ``--help`` must not import gRPC.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster._messages import Output, Size
    from muster._offline import check, convert
    from muster._progress import report
    from muster._requests import Source
    from muster._sync_client import Client, Connection, Execution
    from muster.aio import AsyncClient, AsyncConnection, AsyncExecution
    from muster.errors import (
        ConnectionLost,
        InvalidDocument,
        MusterError,
        NotFound,
        Rejected,
        Unavailable,
        Unsupported,
    )
    from muster_core.models import Problem
    from muster_rpc.v1.job_pb2 import Job, JobSpec

__all__ = [
    "AsyncClient",
    "AsyncConnection",
    "AsyncExecution",
    "Client",
    "Connection",
    "ConnectionLost",
    "Execution",
    "InvalidDocument",
    "Job",
    "JobSpec",
    "MusterError",
    "NotFound",
    "Output",
    "Problem",
    "Rejected",
    "Size",
    "Source",
    "Unavailable",
    "Unsupported",
    "check",
    "convert",
    "report",
]

_HOMES = {
    "AsyncClient": "muster.aio",
    "AsyncConnection": "muster.aio",
    "AsyncExecution": "muster.aio",
    "Client": "muster._sync_client",
    "Connection": "muster._sync_client",
    "ConnectionLost": "muster.errors",
    "Execution": "muster._sync_client",
    "InvalidDocument": "muster.errors",
    "Job": "muster_rpc.v1.job_pb2",
    "JobSpec": "muster_rpc.v1.job_pb2",
    "MusterError": "muster.errors",
    "NotFound": "muster.errors",
    "Output": "muster._messages",
    "Problem": "muster_core.models",
    "Rejected": "muster.errors",
    "Size": "muster._messages",
    "Source": "muster._requests",
    "Unavailable": "muster.errors",
    "Unsupported": "muster.errors",
    "check": "muster._offline",
    "convert": "muster._offline",
    "report": "muster._progress",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'muster' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
