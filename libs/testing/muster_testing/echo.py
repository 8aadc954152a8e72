"""A gRPC service of raw bytes on the services' own host, for tests of interceptors, deadlines and health."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

import grpc
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from muster_service.grpc_server import GrpcHost
from muster_service.metrics import Metrics
from muster_service.trace_context import current_ref

Context = aio.ServicerContext[bytes, bytes]


class Echo:
    """Echoes requests with each of the four kinds of methods, and fails in several ways."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.counted = 0

    async def count_calls(self, request: bytes, context: Context) -> bytes:
        """Count the call and return; abort with UNAVAILABLE if the request is `unavailable`."""
        self.counted += 1
        if request == b"unavailable":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        return request

    async def say(self, request: bytes, context: Context) -> bytes:
        """Return the request."""
        return request

    async def wait(self, request: bytes, context: Context) -> bytes:
        """Return when `release` is set. `entered` is set while it waits, `cancelled` after a cancellation."""
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b"waited"

    async def crash(self, request: bytes, context: Context) -> bytes:
        """Raise an error whose text must not reach a client."""
        raise RuntimeError("an internal detail")

    async def refuse(self, request: bytes, context: Context) -> bytes:
        """Abort with a code and a message."""
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not like this")

    async def trace(self, request: bytes, context: Context) -> bytes:
        """Return the span that is current in the handler."""
        ref = current_ref()
        return ref.traceparent.encode() if ref else b""

    async def count(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        """Yield the numbers below the request."""
        for number in range(int(request)):
            yield str(number).encode()

    async def count_by_writing(self, request: bytes, context: Context) -> None:
        """Write the numbers below the request to the context."""
        for number in range(int(request)):
            await context.write(str(number).encode())

    async def forever(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        """Yield once, then wait for `release`."""
        yield b"first"
        self.entered.set()
        await self.release.wait()

    async def linger(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        """Yield once and wait for a cancellation, which sets `cancelled`; then wait for `release`."""
        yield b"first"
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
            await self.release.wait()

    async def crash_midway(self, request: bytes, context: Context) -> AsyncIterator[bytes]:
        """Yield once, then raise."""
        yield b"first"
        raise RuntimeError("an internal detail")

    async def join(self, requests: AsyncIterator[bytes], context: Context) -> bytes:
        """Return all requests joined."""
        return b"".join([request async for request in requests])

    async def mirror(self, requests: AsyncIterator[bytes], context: Context) -> AsyncIterator[bytes]:
        """Yield every request."""
        async for request in requests:
            yield request


def add_echo(echo: Echo, server: aio.Server) -> None:
    """Register the service, as a generated `add_...Servicer_to_server` does."""
    unary = {
        "Say": echo.say,
        "CountCalls": echo.count_calls,
        "Wait": echo.wait,
        "Crash": echo.crash,
        "Refuse": echo.refuse,
        "Trace": echo.trace,
    }
    streams = {
        "Count": echo.count,
        "CountByWriting": echo.count_by_writing,
        "Forever": echo.forever,
        "Linger": echo.linger,
        "CrashMidway": echo.crash_midway,
    }
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        **{name: grpc.unary_unary_rpc_method_handler(method) for name, method in unary.items()},
        **{name: grpc.unary_stream_rpc_method_handler(method) for name, method in streams.items()},
        "Join": grpc.stream_unary_rpc_method_handler(echo.join),
        "Mirror": grpc.stream_stream_rpc_method_handler(echo.mirror),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    server.add_registered_method_handlers("test.Echo", handlers)  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]  # missing in its stubs


class EchoClient:
    """A client of `Echo`, of the health service and of reflection."""

    def __init__(self, channel: aio.Channel) -> None:
        self.channel = channel

    async def ask(self, method: str, request: bytes = b"", timeout: float | None = None) -> bytes:
        """Call a unary method."""
        call: aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(f"/test.Echo/{method}")
        return await call(request, timeout=timeout)

    def listen(self, method: str, request: bytes = b"") -> aio.UnaryStreamCall[bytes, bytes]:
        """Call a method with a response stream."""
        call: aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel.unary_stream(f"/test.Echo/{method}")
        return call(request)

    async def join(self, *requests: bytes) -> bytes:
        """Call `Join`."""
        call: aio.StreamUnaryMultiCallable[bytes, bytes] = self.channel.stream_unary("/test.Echo/Join")
        return await call(iter(requests))

    async def mirror(self, *requests: bytes) -> list[bytes]:
        """Call `Mirror` and collect its responses."""
        call: aio.StreamStreamMultiCallable[bytes, bytes] = self.channel.stream_stream("/test.Echo/Mirror")
        return [answer async for answer in call(iter(requests))]

    async def health(self, service: str = "") -> str:
        """Return the name of the health status of a service, or of the whole server."""
        call: aio.UnaryUnaryMultiCallable[bytes, bytes] = self.channel.unary_unary(
            "/grpc.health.v1.Health/Check"
        )
        return _status(await call(HealthCheckRequest(service=service).SerializeToString()))

    async def watch_health(self, service: str = "") -> AsyncGenerator[str]:
        """Yield the health status of a service, now and at each change."""
        call: aio.UnaryStreamMultiCallable[bytes, bytes] = self.channel.unary_stream(
            "/grpc.health.v1.Health/Watch"
        )
        async for answer in call(HealthCheckRequest(service=service).SerializeToString()):
            yield _status(answer)

    async def services(self) -> set[str]:
        """Return the names of all services, by reflection."""
        path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        call: aio.StreamStreamMultiCallable[bytes, bytes] = self.channel.stream_stream(path)
        request = ServerReflectionRequest(list_services="").SerializeToString()
        answers = [ServerReflectionResponse.FromString(answer) async for answer in call(iter([request]))]
        return {service.name for answer in answers for service in answer.list_services_response.service}


def _status(answer: bytes) -> str:
    return HealthCheckResponse.ServingStatus.Name(HealthCheckResponse.FromString(answer).status)


class EchoServer:
    """A running echo service with its host, metrics and client."""

    def __init__(self, echo: Echo, host: GrpcHost, metrics: Metrics, caller: EchoClient) -> None:
        self.echo = echo
        self.host = host
        self.metrics = metrics
        self.caller = caller


class Serve(Protocol):
    """Starts an echo service with the given timeouts."""

    async def __call__(
        self,
        *,
        address: str = ...,
        default_timeout_s: float = ...,
        stream_timeout_s: float | None = ...,
        client_timeout_s: float = ...,
    ) -> EchoServer:
        """Start the service at `address`; it stops at the end of the test."""
        ...
