"""Poison: payloads, headers and subjects that no service writes, and a connection that publishes them unchecked."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

_LONG = 300_000
_HUGE = 4_000_000
_CONTROL = "\x1b[2J\x00\x07\r\n\u202e"

_WRONG = msgspec.json.decode(
    b'[null, [], {}, "x", -1, 1000000000000000000000000000000, [[]], {"": {}}]', type=list[Any]
)

HEADERS: tuple[bytes, ...] = (
    b"NATS/1.0\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: 00-zz-zz-zz\r\nce-source: \x1b[2J\xff\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: \xff\xfe\r\nce-id\r\n: \r\n\r\n",
    b"NATS/1.0 503 none\r\nStatus: 100\r\n\r\n",
    b"NATS/1.0\r\n" + b"x-filler: " + b"h" * 60_000 + b"\r\n\r\n",
)
"""Header blocks: empty, wrong, not UTF-8, a status of the broker's own, large."""


def payloads(sample: bytes, *, seed: int = 0) -> Iterable[bytes]:
    """Yield payloads that resemble ``sample``, a JSON object, less and less."""
    numbers = random.Random(seed)  # noqa: S311 - no secret
    value: dict[str, Any] = msgspec.json.decode(sample)
    yield b""
    yield bytes(numbers.randrange(256) for _ in range(200))
    yield from (b"null", b"true", b"0", b'""', b"[]", b"{}", b"NaN", b'"\\ud800"', b"\x00", b"\xff\xfe{}")
    yield b"[" * 50_000
    yield sample[: len(sample) // 2]
    yield sample + sample
    yield msgspec.msgpack.encode(value)
    yield b" " * _HUGE
    for number in (-5, 0, 2**31, 2**63 - 1, 2**64, 10**40, 1.5, True, None, "5"):
        yield msgspec.json.encode(_replaced(value, int, number))
    for text in ("", " ", _CONTROL, "x" * _LONG, "*.>", "../../x", "j-abcdefghijklmnop", "unknown", 7, None):
        yield msgspec.json.encode(_replaced(value, str, text, skip=("event",)))
    for name in sorted(value):
        for wrong in _WRONG:
            yield msgspec.json.encode(value | {name: wrong})
        yield msgspec.json.encode({key: one for key, one in value.items() if key != name})
    for _ in range(20):
        damaged = bytearray(sample)
        damaged[numbers.randrange(len(damaged))] ^= 1 << numbers.randrange(8)
        yield bytes(damaged)


def _replaced(value: Any, kind: type, new: object, *, skip: tuple[str, ...] = ()) -> object:
    """Replace every leaf of ``kind``, but those under a key in ``skip``."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            key: one if key in skip else _replaced(one, kind, new, skip=skip) for key, one in fields.items()
        }
    if isinstance(value, list):
        return [_replaced(one, kind, new, skip=skip) for one in cast("list[Any]", value)]
    return new if type(value) is kind else value


class RawPublisher:
    """A connection that sends subjects, headers and payloads of any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def connected(cls, url: str) -> AsyncGenerator[RawPublisher]:
        """Connect to the broker at ``url``."""
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            publisher = cls(reader, writer)
            await reader.readline()
            writer.write(b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n')
            await publisher.flush()
            yield publisher
        finally:
            writer.close()

    async def publish(self, subject: bytes, payload: bytes, *, headers: bytes = b"") -> None:
        """Send a message without waiting for an answer."""
        if headers:
            sizes = b"%d %d" % (len(headers), len(headers) + len(payload))
            self._writer.write(b"HPUB %s %s\r\n%s%s\r\n" % (subject, sizes, headers, payload))
        else:
            self._writer.write(b"PUB %s %d\r\n%s\r\n" % (subject, len(payload), payload))
        await self._writer.drain()

    async def flush(self) -> None:
        """Return when the broker has read everything; raises ``ConnectionError`` if it closed the connection."""
        self._writer.write(b"PING\r\n")
        await self._writer.drain()
        while (line := await self._reader.readline()) != b"PONG\r\n":
            if line == b"PING\r\n":
                self._writer.write(b"PONG\r\n")
            elif not line or line.startswith(b"-ERR"):
                raise ConnectionError(f"the broker refused a message: {line!r}")
