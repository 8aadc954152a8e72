"""An independent watch of bound pods.

The server sends only metadata of pods that have a node, so that watching costs little.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
from cluster_gangs import NAMESPACE
from cluster_http import Server, context_for

from muster_testing.cluster.views import Named

_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
_BOUND = "spec.nodeName!="
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: Named


class _ListMetadata(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMetadata


class Onlooker:
    """When pods were first seen bound (monotonic clock), by name."""

    def __init__(self) -> None:
        self.bound: dict[str, float] = {}
        self._news = asyncio.Event()

    async def until(self, count: int, *, timeout_s: float) -> None:
        """Wait until this many are bound; raises ``TimeoutError``."""
        async with asyncio.timeout(timeout_s):
            while len(self.bound) < count:
                await self._next()

    async def until_quiet(self, *, idle_s: float, timeout_s: float) -> None:
        """Wait until nothing new has been bound for ``idle_s``; raises ``TimeoutError``."""
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    async with asyncio.timeout(idle_s):
                        await self._next()
                except TimeoutError:
                    return

    async def _next(self) -> None:
        self._news.clear()
        await self._news.wait()

    def see(self, line: bytes) -> str:
        """Apply one event; returns the resource version that is covered."""
        now = time.monotonic()
        event = msgspec.json.decode(line, type=_Event)
        if event.type != "DELETED":
            self.bound.setdefault(event.object.metadata.name, now)
            self._news.set()
        return event.object.metadata.resource_version


@asynccontextmanager
async def onlooker(server: Server) -> AsyncGenerator[Onlooker]:
    """Watch until cancelled."""
    seen = Onlooker()
    connector = aiohttp.TCPConnector(ssl=context_for(Path(server.ca_file)))
    headers = {"Authorization": f"Bearer {server.token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        server.url, connector=connector, headers=headers, timeout=timeout, read_bufsize=2**20
    ) as session:
        query = {"fieldSelector": _BOUND, "limit": "1"}
        async with session.get(_PATH, params=query, headers={"Accept": _METADATA_LIST}) as listed:
            listed.raise_for_status()
            version = msgspec.json.decode(await listed.read(), type=_List).metadata.resource_version
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(_follow(session, seen, version))
            yield seen
            task.cancel()


async def _follow(session: aiohttp.ClientSession, seen: Onlooker, version: str) -> None:
    """A busy server ends slow watches; the next one resumes where the last one ended."""
    while True:
        query = {"fieldSelector": _BOUND, "watch": "1", "resourceVersion": version}
        async with session.get(_PATH, params=query, headers={"Accept": _METADATA}) as events:
            events.raise_for_status()
            async for line in _lines(events.content):
                version = seen.see(line)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line
