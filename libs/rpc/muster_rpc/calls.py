"""What servicers and clients share about calls: the type of a context, and the mark of a stream that has begun.

An idle stream that breaks either never began, or began long ago. A client gives up the first after a while, and resumes the second with its
full retry timeout. So a server sends initial metadata when a stream begins, before the first message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grpc import aio

ServerContext = aio.ServicerContext[Any, Any]
"""The context of a call; the generated signatures have the types of request and response."""

RECORD_QUERIES = "muster.internal.v1.RecordService"
"""The service of the status-tracker; every instance that has read the records answers."""

LEADER_QUERIES = "muster.internal.v1.PoolService"
"""The service of the scheduler; only the leader answers."""

OPEN = (("muster-stream", "open"),)
"""The initial metadata of a stream that has begun."""


def has_begun(metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
    """Whether initial metadata are those of a stream that has begun."""
    return any(entry in OPEN for entry in metadata or ())
