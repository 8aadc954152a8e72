"""A small API client for tests, independent of the client under test."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec

from muster_testing.cluster.views import Named

T = TypeVar("T")

_TIMEOUT = aiohttp.ClientTimeout(total=30)
_BAD_REQUEST = 400


class RestError(Exception):
    """A request failed; ``status`` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Rest:
    """Requests of one session; paths start with ``/api`` or ``/apis``. All raise ``RestError``."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str, kind: type[T], **query: str) -> T:
        """Read an object as a ``kind``, one of ``views`` or any other that msgspec decodes to."""
        return msgspec.json.decode(await self._request("GET", path, query=query), type=kind)

    async def items(self, path: str, kind: type[T], **query: str) -> list[T]:
        """Read a list of objects, each as a ``kind``."""
        answer = msgspec.json.decode(
            await self._request("GET", path, query=query), type=dict[str, msgspec.Raw]
        )
        return msgspec.json.decode(answer["items"], type=list[kind])

    async def create(self, path: str, content: Mapping[str, object]) -> Named:
        """Create an object in a collection."""
        return msgspec.json.decode(await self._request("POST", path, content=content), type=Named)

    async def patch(self, path: str, content: Mapping[str, object]) -> Named:
        """Change an object (or its subresource) by a merge patch."""
        kind = "application/merge-patch+json"
        return msgspec.json.decode(await self._request("PATCH", path, content=content, kind=kind), type=Named)

    async def delete(self, path: str, **query: str) -> None:
        """Delete an object, or all of a collection."""
        await self._request("DELETE", path, query=query)

    async def text(self, path: str, **query: str) -> str:
        """Read text, such as a log."""
        return (await self._request("GET", path, query=query)).decode(errors="replace")

    async def _request(
        self,
        method: str,
        path: str,
        *,
        content: Mapping[str, object] | None = None,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> bytes:
        body = None if content is None else msgspec.json.encode(content)
        async with self._session.request(
            method, path, data=body, params=query or {}, headers={"Content-Type": kind}
        ) as response:
            answer = await response.read()
            if response.status >= _BAD_REQUEST:
                raise RestError(response.status, answer.decode(errors="replace"))
            return answer


@asynccontextmanager
async def connected(url: str, *, context: ssl.SSLContext, token: str | None) -> AsyncGenerator[Rest]:
    """Open a session with the API server at ``url``; ``token`` is None if the context has a client certificate."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connector = aiohttp.TCPConnector(ssl=context, limit=32)
    async with aiohttp.ClientSession(url, connector=connector, headers=headers, timeout=_TIMEOUT) as session:
        yield Rest(session)


def trusting(ca_file: Path) -> ssl.SSLContext:
    """Return a context that trusts only the certificates in a file."""
    context = ssl.create_default_context(cafile=str(ca_file))
    # The server's self-signed certificate fails the strict checks for authorities.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
