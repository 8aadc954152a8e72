"""gRPC channels to other services: trace propagation, default deadlines, fast reconnects."""

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TypeVar

import grpc
from grpc import aio

from muster_service.grpc_options import CHANNEL_OPTIONS
from muster_service.trace_context import inject

Q = TypeVar("Q")
A = TypeVar("A")
Requests = AsyncIterable[Q] | Iterable[Q]


def channel(
    address: str, *, default_timeout_s: float = 10.0, credentials: grpc.ChannelCredentials | None = None
) -> aio.Channel:
    """Open a channel to `address`, a gRPC target such as `127.0.0.1:7071` or `dns:///gateway:7071`.

    Args:
        address: the target; connects at the first call, and again with a back-off of 0.1 to 1 s.
        default_timeout_s: the deadline of a call without one; streaming calls get none.
        credentials: for TLS; default plain text.
    """
    interceptors: list[aio.ClientInterceptor] = [
        _UnaryUnary(default_timeout_s),
        _UnaryStream(default_timeout_s),
        _StreamUnary(default_timeout_s),
        _StreamStream(default_timeout_s),
    ]
    if credentials is None:
        return aio.insecure_channel(address, options=CHANNEL_OPTIONS, interceptors=interceptors)
    return aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS, interceptors=interceptors)


class _Outgoing:
    def __init__(self, default_timeout_s: float) -> None:
        self._default_timeout_s = default_timeout_s

    def _completed(self, details: aio.ClientCallDetails, *, streamed: bool) -> aio.ClientCallDetails:
        metadata = aio.Metadata(*(details.metadata or ()))
        for name, value in inject().items():
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
        continuation: "Callable[[aio.ClientCallDetails, Q], Awaitable[aio.UnaryUnaryCall[Q, A]]]",
        client_call_details: aio.ClientCallDetails,
        request: Q,
    ) -> "aio.UnaryUnaryCall[Q, A]":
        return await continuation(self._completed(client_call_details, streamed=False), request)


class _UnaryStream(_Outgoing, aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self,
        continuation: "Callable[[aio.ClientCallDetails, Q], Awaitable[aio.UnaryStreamCall[Q, A]]]",
        client_call_details: aio.ClientCallDetails,
        request: Q,
    ) -> "aio.UnaryStreamCall[Q, A]":
        return await continuation(self._completed(client_call_details, streamed=True), request)


class _StreamUnary(_Outgoing, aio.StreamUnaryClientInterceptor):
    async def intercept_stream_unary(
        self,
        continuation: "Callable[[aio.ClientCallDetails, Requests[Q]], Awaitable[aio.StreamUnaryCall[Q, A]]]",
        client_call_details: aio.ClientCallDetails,
        request_iterator: Requests[Q],
    ) -> "aio.StreamUnaryCall[Q, A]":
        return await continuation(self._completed(client_call_details, streamed=False), request_iterator)


class _StreamStream(_Outgoing, aio.StreamStreamClientInterceptor):
    async def intercept_stream_stream(
        self,
        continuation: "Callable[[aio.ClientCallDetails, Requests[Q]], Awaitable[aio.StreamStreamCall[Q, A]]]",
        client_call_details: aio.ClientCallDetails,
        request_iterator: Requests[Q],
    ) -> "aio.StreamStreamCall[Q, A]":
        return await continuation(self._completed(client_call_details, streamed=True), request_iterator)
