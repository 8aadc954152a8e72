"""Streams: bidirectional calls for asyncio and for threads, and positions from which a broken stream resumes."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import grpc
from grpc import aio

from muster._connection import error_of, is_transient
from muster.errors import ConnectionLost, MusterError, NotFound
from muster_rpc.v1 import job_service_pb2

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


RESUME_OVERLAP = 1_000
"""How many revisions a resumed watch of all jobs overlaps: records advance concurrently, so a change may arrive after a
later one of another job. Repetitions are dropped here.
"""


class JobCursor:
    """The position of a watch of one job. After the first answer it is bound to the job's id."""

    def __init__(self, ref: job_service_pb2.JobRef, after_revision: int) -> None:
        self._ref = ref
        self._revision = after_revision

    def request(self) -> job_service_pb2.WatchJobRequest:
        """Return the next request."""
        return job_service_pb2.WatchJobRequest(job=self._ref, after_revision=self._revision)

    def admits(self, response: job_service_pb2.WatchJobResponse) -> bool:
        """Return whether the event is new, and record it. Raises ``NotFound`` when the job was deleted."""
        job = response.job
        if response.type == job_service_pb2.WATCH_EVENT_TYPE_DELETED:
            raise NotFound(f"job {job.job_id} was deleted")
        if job.revision <= self._revision:
            return False
        self._revision = job.revision
        self._ref = job_service_pb2.JobRef(job_id=job.job_id)
        return True


class JobsCursor:
    """The position of a watch of all jobs. The server sends in revision order, up to the overlap."""

    def __init__(self, request: job_service_pb2.WatchJobsRequest, after_revision: int) -> None:
        self._namespace = request.namespace
        self._after = after_revision
        self._newest = after_revision
        self._seen: dict[tuple[str, bool], int] = {}
        self._synced = False

    def request(self) -> job_service_pb2.WatchJobsRequest:
        """Return the next request."""
        # A new watch gets live jobs only; a resumed one must hear of those that have ended meanwhile.
        after = max(self._newest - RESUME_OVERLAP, self._after, int(self._synced or self._newest > 0))
        return job_service_pb2.WatchJobsRequest(namespace=self._namespace, after_revision=after)

    def admits(self, response: job_service_pb2.WatchJobsResponse) -> bool:
        """Return whether the event is new, and record it. SYNCED is new once."""
        if response.type == job_service_pb2.WATCH_EVENT_TYPE_SYNCED:
            synced, self._synced = self._synced, True
            return not synced
        key = (response.job.job_id, response.type == job_service_pb2.WATCH_EVENT_TYPE_DELETED)
        revision = response.revision
        if key in self._seen and revision <= self._seen[key]:
            return False
        self._seen[key] = revision
        self._newest = max(self._newest, revision)
        if len(self._seen) > 2 * RESUME_OVERLAP:
            self._forget_old()
        return True

    def _forget_old(self) -> None:
        oldest = self._newest - RESUME_OVERLAP
        self._seen = {key: revision for key, revision in self._seen.items() if revision > oldest}


class LogCursor:
    """How much output of each replica was received. A stream that restarts from the beginning is cut by that much."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, int], int] = {}
        self._offset: dict[tuple[str, int, int], int] = {}

    def restart(self) -> None:
        """Record that the next chunk comes from a new stream that starts at the beginning."""
        self._offset.clear()

    def news(self, chunk: job_service_pb2.StreamLogsResponse) -> job_service_pb2.StreamLogsResponse | None:
        """Return the new part of the chunk, or None."""
        key = (chunk.replica.role, chunk.replica.index, chunk.replica.attempt)
        start = self._offset.get(key, 0)
        end = start + len(chunk.data)
        self._offset[key] = end
        yielded = self._seen.get(key, 0)
        if end <= yielded:
            return None
        self._seen[key] = end
        if start >= yielded:
            return chunk
        rest = job_service_pb2.StreamLogsResponse()
        rest.CopyFrom(chunk)
        rest.data = chunk.data[yielded - start :]
        return rest
