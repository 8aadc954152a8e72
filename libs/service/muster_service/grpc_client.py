"""gRPC channels to other services: trace propagation, default deadlines, fast reconnects, and another instance after a failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeVar, cast

import grpc
from grpc import aio

from muster_service.grpc_client_spans import ClientSpan, ClientSpans, EndingCall
from muster_service.trace_context import inject
from muster_service.tracing import Telemetry

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
_KEEPALIVE_MS = 20_000
_KEEPALIVE_TIMEOUT_MS = 5_000
_HANDSHAKE_TIMEOUT_MS = 10_000
_RECONNECT_S = 2.5
"""Longer than the largest back-off and the start of a service's server."""

_COMMON: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
]

SERVER_OPTIONS: list[tuple[str, int | str]] = [
    *_COMMON,
    ("grpc.http2.min_ping_interval_without_data_ms", _KEEPALIVE_MS // 2),
    # A connection that says nothing holds a descriptor; the default is 120 s.
    ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_MS),
    # With a shared port, a second service on the same port would silently get half of the calls.
    ("grpc.so_reuseport", 0),
]

CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    *_COMMON,
    # What a caller has not read yet is kept in memory for each stream: the flow-control window must not grow.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # This bounds a connection attempt: much less fails on a loaded machine, the default of 20 s hangs on a dead one.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Without this gRPC ignores the timeout of an attempt.
    ("grpc.experimental.enable_hedging", 1),
]


Q = TypeVar("Q")
A = TypeVar("A")
C = TypeVar("C")
M = TypeVar("M")
M_co = TypeVar("M_co", covariant=True)
Requests = AsyncIterable[Q] | Iterable[Q]


class StreamingCall(Protocol[M_co]):
    """A call with a stream of answers."""

    def __aiter__(self) -> AsyncIterator[M_co]:
        """Iterate over the answers."""
        ...

    def cancel(self) -> bool:
        """End the call."""
        ...


class Messages(AsyncIterator[M]):
    """The messages of a gRPC stream; a cancellation ends the waiting for the next one, but not the read.

    gRPC never frees the buffers of a read whose task is cancelled: up to 64 KiB each. A read that goes on ends with its call.
    """

    def __init__(self, stream: AsyncIterable[M]) -> None:
        self._stream = aiter(stream)
        self._read: asyncio.Task[M] | None = None

    async def __anext__(self) -> M:
        """Return the next message."""
        self._read = asyncio.create_task(_next_of(self._stream))
        self._read.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(self._read)
        finally:
            # Its exception refers to this frame: together they would wait for the garbage collector.
            if self._read.done():
                self._read = None

    async def read_ended(self) -> None:
        """Wait for the read that is under way, if any: the call must have ended or been cancelled."""
        if self._read is not None:
            await asyncio.wait([self._read])
            self._read = None


async def _next_of(stream: AsyncIterator[M]) -> M:
    return await anext(stream)


def _retrieve(read: asyncio.Task[M]) -> None:
    """Mark the exception of a read that is not waited for as seen."""
    if not read.cancelled():
        read.exception()


@asynccontextmanager
async def until_left(call: StreamingCall[M]) -> AsyncGenerator[Messages[M]]:
    """Give the answers of ``call``, and end it with the block, however that ends.

    A call that is merely dropped runs on until the garbage collector finds it: it is part of a reference cycle with the
    iterator of its answers, which is broken here, too.
    """
    answers = Messages(call)
    try:
        yield answers
    finally:
        call.cancel()
        await answers.read_ended()
        with suppress(asyncio.CancelledError, aio.AioRpcError):
            async for _ in answers:
                pass


_RETRIES = {
    "maxAttempts": 5,
    "initialBackoff": "0.05s",
    "maxBackoff": "1s",
    "backoffMultiplier": 3,
    "retryableStatusCodes": ["UNAVAILABLE"],
    # An instance that is paused or cut off accepts calls and never answers; queries wait up to 3 s for their revision.
    "perAttemptRecvTimeout": "4s",
}


def channel(
    address: str,
    *,
    default_timeout_s: float = 10.0,
    credentials: grpc.ChannelCredentials | None = None,
    queries: str = "",
    called_once: Sequence[str] = (),
    telemetry: Telemetry | None = None,
) -> aio.Channel:
    """Open a channel to `address`, a gRPC target such as `127.0.0.1:7071` or `dns:///gateway:7071`.

    Calls are spread over the instances that the target names. While none is connected, a call waits 2.5 s at most, so that
    it outlives a restart of the service.

    Args:
        address: the target; connects at the first call, and again with a back-off of 0.1 to 1 s.
        queries: the full name of a gRPC service whose calls can be repeated: they go to instances whose health for it is
            SERVING, and to the next one after UNAVAILABLE or silence.
        called_once: the methods of that service whose calls are not repeated.
        default_timeout_s: the deadline of a call without one; streaming calls get none.
        credentials: for TLS; default plain text.
        telemetry: for a client span of each call that is made within a span.
    """
    connection = _Connection()
    spans = ClientSpans(telemetry, address) if telemetry else None
    kinds = (_UnaryUnary, _UnaryStream, _StreamUnary, _StreamStream)
    interceptors: list[aio.ClientInterceptor] = [kind(default_timeout_s, connection, spans) for kind in kinds]
    options = [*CHANNEL_OPTIONS, ("grpc.service_config", _service_config(queries, called_once))]
    if credentials is None:
        opened = aio.insecure_channel(address, options=options, interceptors=interceptors)
    else:
        opened = aio.secure_channel(address, credentials, options=options, interceptors=interceptors)
    connection.channel = opened
    return opened


def _service_config(queries: str, called_once: Sequence[str]) -> str:
    config: dict[str, object] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if queries:
        once = [{"service": queries, "method": method} for method in called_once]
        config["methodConfig"] = [{"name": [{"service": queries}], "retryPolicy": _RETRIES}, {"name": once}]
        config["healthCheckConfig"] = {"serviceName": queries}
    return json.dumps(config)


class _Connection:
    """The state of the channel that the interceptors belong to."""

    def __init__(self) -> None:
        self.channel: aio.Channel | None = None

    async def wait_out_failure(self) -> None:
        """Wait for the next connection if the last attempt failed; returns without one after a while."""
        channel = self.channel
        if channel is None or channel.get_state() is not grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(_RECONNECT_S):
                while (state := channel.get_state()) is not grpc.ChannelConnectivity.READY:
                    await channel.wait_for_state_change(state)


def _method_name(details: aio.ClientCallDetails) -> str:
    # gRPC passes bytes, whatever the type of the field is.
    method = cast("str | bytes", details.method)
    return method.decode() if isinstance(method, bytes) else method


class _Outgoing:
    def __init__(self, default_timeout_s: float, connection: _Connection, spans: ClientSpans | None) -> None:
        self._default_timeout_s = default_timeout_s
        self._connection = connection
        self._spans = spans

    async def _call(
        self,
        continuation: Callable[[aio.ClientCallDetails, Q], Awaitable[C]],
        details: aio.ClientCallDetails,
        request: Q,
        *,
        streamed: bool,
    ) -> C:
        span = self._spans.begin(_method_name(details)) if self._spans else None
        try:
            call = await continuation(await self._completed(details, span, streamed=streamed), request)
        except BaseException as error:
            if span is not None:
                span.fail(error)
            raise
        if span is not None:
            span.follow(cast("EndingCall", call))
        return call

    async def _completed(
        self, details: aio.ClientCallDetails, span: ClientSpan | None, *, streamed: bool
    ) -> aio.ClientCallDetails:
        await self._connection.wait_out_failure()
        metadata = aio.Metadata(*(details.metadata or ()))
        for name, value in inject(span.ref if span else None).items():
            if name not in metadata:
                metadata.add(name, value)
        timeout = details.timeout
        if timeout is None and not streamed:
            timeout = self._default_timeout_s
        return aio.ClientCallDetails(
            details.method, timeout, metadata, details.credentials, details.wait_for_ready
        )


class _UnaryUnary(_Outgoing, aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self,
        continuation: Callable[[aio.ClientCallDetails, Q], Awaitable[aio.UnaryUnaryCall[Q, A]]],
        client_call_details: aio.ClientCallDetails,
        request: Q,
    ) -> aio.UnaryUnaryCall[Q, A]:
        return await self._call(continuation, client_call_details, request, streamed=False)


class _UnaryStream(_Outgoing, aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self,
        continuation: Callable[[aio.ClientCallDetails, Q], Awaitable[aio.UnaryStreamCall[Q, A]]],
        client_call_details: aio.ClientCallDetails,
        request: Q,
    ) -> aio.UnaryStreamCall[Q, A]:
        return await self._call(continuation, client_call_details, request, streamed=True)


class _StreamUnary(_Outgoing, aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(
        self,
        continuation: Callable[[aio.ClientCallDetails, Requests[Q]], Awaitable[aio.StreamUnaryCall[Q, A]]],
        client_call_details: aio.ClientCallDetails,
        request_iterator: Requests[Q],
    ) -> aio.StreamUnaryCall[Q, A]:
        return await self._call(continuation, client_call_details, request_iterator, streamed=False)


class _StreamStream(_Outgoing, aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(
        self,
        continuation: Callable[[aio.ClientCallDetails, Requests[Q]], Awaitable[aio.StreamStreamCall[Q, A]]],
        client_call_details: aio.ClientCallDetails,
        request_iterator: Requests[Q],
    ) -> aio.StreamStreamCall[Q, A]:
        return await self._call(continuation, client_call_details, request_iterator, streamed=True)
