"""What servicers share."""

from __future__ import annotations

from typing import Any

from grpc import aio

ServerContext = aio.ServicerContext[Any, Any]
"""The context of a call; the generated signatures say both request and response already."""
