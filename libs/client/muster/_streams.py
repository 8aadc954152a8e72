"""Bidirectional calls: the transport below commands and port connections, for asyncio and for threads.

Both classes have the same methods, so that the synchronous client is generated from the asyncio client.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import grpc
from grpc import aio

from muster._failures import error_of, is_transient
from muster.errors import ConnectionLost, MusterError

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

ResponseT_co = TypeVar("ResponseT_co", covariant=True)

_QUEUE_LENGTH = 4
_POLL_S = 0.5


class AsyncResponses(Protocol[ResponseT_co]):
    """The responses of a streaming call."""

    def __aiter__(self) -> AsyncIterator[ResponseT_co]: ...
    def cancel(self) -> bool:
        """Cancel the call."""
        ...

    async def initial_metadata(self) -> aio.Metadata:
        """Return the initial metadata; empty if the call failed before."""
        ...


class Responses(Protocol[ResponseT_co]):
    """The responses of a streaming call."""

    def __iter__(self) -> Iterator[ResponseT_co]: ...
    def cancel(self) -> bool:
        """Cancel the call."""
        ...

    def initial_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """Return the initial metadata; empty if the call failed before."""
        ...


class HasRevision(Protocol):
    """The response of a command."""

    @property
    def revision(self) -> int: ...


class HasPageToken(Protocol):
    """The request of a page."""

    page_token: str


class HasNextPageToken(Protocol):
    """A page of a list."""

    @property
    def next_page_token(self) -> str: ...


class AsyncCall(Generic[RequestT, ResponseT]):
    """A bidirectional call; requests are sent one after another, at the pace of the server."""

    def __init__(
        self,
        method: aio.StreamStreamMultiCallable[RequestT, ResponseT],
        *,
        metadata: tuple[tuple[str, str], ...],
        address: str,
    ) -> None:
        self._stream = method(metadata=metadata)
        self._responses = aiter(self._stream)
        self._address = address
        self._begun = False

    async def send(self, requests: Iterable[RequestT]) -> None:
        """Send requests; after the end of the call they are dropped, and ``receive`` raises the reason."""
        with suppress(grpc.RpcError, asyncio.InvalidStateError):
            for request in requests:
                await self._stream.write(request)

    async def receive(self) -> ResponseT | None:
        """Return the next response; None at the end. Raises ``MusterError``."""
        try:
            response = await anext(self._responses, None)
        except grpc.RpcError as error:
            raise _failure(error, begun=self._begun, address=self._address) from None
        self._begun = True
        return response

    def close(self) -> None:
        """Cancel the call."""
        self._stream.cancel()


class Call(Generic[RequestT, ResponseT]):
    """A bidirectional call; gRPC reads requests from a bounded queue in a thread, so that ``send`` waits for the server."""

    def __init__(
        self,
        method: grpc.StreamStreamMultiCallable[RequestT, ResponseT],
        *,
        metadata: tuple[tuple[str, str], ...],
        address: str,
    ) -> None:
        self._requests: queue.Queue[RequestT | None] = queue.Queue(_QUEUE_LENGTH)
        requests: Iterator[RequestT] = iter(self._requests.get, None)
        self._stream = method(requests, metadata=metadata)
        self._address = address
        self._begun = False

    def send(self, requests: Iterable[RequestT]) -> None:
        """Send requests; after the end of the call they are dropped, and ``receive`` raises the reason."""
        for request in requests:
            while self._stream.is_active():
                with suppress(queue.Full):
                    self._requests.put(request, timeout=_POLL_S)
                    break

    def receive(self) -> ResponseT | None:
        """Return the next response; None at the end. Raises ``MusterError``."""
        try:
            response = next(self._stream, None)
        except grpc.RpcError as error:
            raise _failure(error, begun=self._begun, address=self._address) from None
        self._begun = True
        return response

    def close(self) -> None:
        """Cancel the call."""
        self._stream.cancel()
        # The thread that reads the queue ends with None.
        while True:
            try:
                return self._requests.put_nowait(None)
            except queue.Full:
                with suppress(queue.Empty):
                    self._requests.get_nowait()


def _failure(error: grpc.RpcError, *, begun: bool, address: str) -> MusterError:
    failure = error_of(error, address=address)
    return ConnectionLost(f"the connection was lost: {failure}") if begun and is_transient(error) else failure
