"""One POST over HTTP/1.1, and of the answer no more than its status.

Redirects are never followed, so that a receiver cannot send Muster's requests elsewhere. Each request has a connection of its own, and one
bound on its whole time: a receiver that answers a byte a minute hangs as much as one that does not answer.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import SplitResult

import msgspec

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
_MOST_HEADERS = 100
_FIRST_FINAL = 200
_DEFAULT_PORTS = {"http": 80, "https": 443}


class NoAnswer(Exception):
    """Nothing that can be called an answer came; whether the receiver took the request is not known."""


class Answer(msgspec.Struct, frozen=True):
    """A receiver's answer; ``retry_after_s`` is how long it asked to be left alone, 0 where it did not say."""

    status: int
    retry_after_s: float = 0.0


def tls_of(address: SplitResult, ca_file: str | None) -> ssl.SSLContext | None:
    """How a receiver is recognised: by the machine's authorities, or by those in ``ca_file``; None without TLS."""
    return ssl.create_default_context(cafile=ca_file) if address.scheme == "https" else None


async def post(
    address: SplitResult,
    body: bytes,
    *,
    headers: Mapping[str, str],
    timeout_s: float,
    tls: ssl.SSLContext | None,
) -> Answer:
    """Post ``body`` and return the answer; raises ``NoAnswer``."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _exchange(address, body, headers, tls)
    except TimeoutError as error:
        raise NoAnswer(f"no answer within {timeout_s:g} s") from error
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise NoAnswer(f"{type(error).__name__}: {error}") from error


async def _exchange(
    address: SplitResult, body: bytes, headers: Mapping[str, str], tls: ssl.SSLContext | None
) -> Answer:
    port = address.port or _DEFAULT_PORTS[address.scheme]
    reader, writer = await asyncio.open_connection(address.hostname, port, ssl=tls)
    try:
        writer.write(_request(address, body, headers))
        # A receiver may answer without reading all of it; its answer counts.
        with suppress(ConnectionError):
            await writer.drain()
        answer = await _answer(reader)
        while answer.status < _FIRST_FINAL:
            answer = await _answer(reader)
        return answer
    finally:
        writer.transport.abort()


def _request(address: SplitResult, body: bytes, headers: Mapping[str, str]) -> bytes:
    target = (address.path or "/") + (f"?{address.query}" if address.query else "")
    lines = [
        f"POST {target} HTTP/1.1",
        f"Host: {address.netloc}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _answer(reader: asyncio.StreamReader) -> Answer:
    matched = _STATUS.match(await reader.readuntil(b"\n"))
    if matched is None:
        raise NoAnswer("what it answered is not HTTP")
    retry_after_s = 0.0
    for _ in range(_MOST_HEADERS):
        line = (await reader.readuntil(b"\n")).strip()
        if not line:
            return Answer(int(matched[1]), retry_after_s)
        name, _, value = line.partition(b":")
        if name.lower() == b"retry-after" and value.strip().isdigit():
            retry_after_s = float(value)
    raise NoAnswer(f"its answer has more than {_MOST_HEADERS} headers")
