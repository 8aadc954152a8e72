"""Requests over one inbox."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from muster_bus import BusUnavailable
from muster_bus._requests import Requests


async def test_a_request_that_is_not_sent_in_time_leaves_no_failure_that_nothing_awaits():
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    async def publish(subject: str, data: bytes, reply: str, headers: dict[str, str] | None) -> None:
        await asyncio.sleep(0.02)
        raise BusUnavailable("there is no connection")

    requests = Requests(prefix="_INBOX", publish=publish)
    with pytest.raises(BusUnavailable, match="there is no connection"):
        await requests.ask("a", b"", headers=None, timeout_s=0.01)
    gc.collect()

    assert errors == []
