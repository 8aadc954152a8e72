"""gRPC without sockets: channels and servers between the processes of the simulation.

A call passes through the interceptor of the real server, with serialised messages. A channel keeps the instance that it has
chosen until the connection breaks (the policy ``pick_first``), or takes turns if its options say ``round_robin``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from random import Random
from typing import Any, NoReturn, cast

import grpc
from grpc import aio
from memory_network import Network, Pipe
from virtual_loop import Process, current_process

from muster_service.grpc_calls import CallInterceptor
from muster_service.metrics import Metrics
from muster_service.tracing import Telemetry

_DEFAULT_TIMEOUT_S = 10.0
_SERVER_TIMEOUT_S = 30.0

Metadata = tuple[tuple[str, str | bytes], ...]


class Endpoint:
    """The server of one instance."""

    def __init__(self, process: Process, service: str, *, telemetry: Telemetry, metrics: Metrics) -> None:
        self.process = process
        self.service = service
        self.calls: dict[Call, None] = {}
        self.draining = False
        self._serving = False
        self._stopped: set[str] = set()
        self._handlers: dict[str, Any] = {}
        self.interceptor = CallInterceptor(
            telemetry=telemetry,
            metrics=metrics,
            default_timeout_s=_SERVER_TIMEOUT_S,
            stream_timeout_s=None,
        )

    def add_generic_rpc_handlers(self, handlers: Sequence[object]) -> None:
        """Ignore: they duplicate the registered handlers."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        """Serve the methods of a servicer."""
        for name, handler in handlers.items():
            self._handlers[f"/{service}/{name}"] = handler

    def set_serving(self, service: str, serving: bool) -> None:
        """Set the health of a gRPC service, or of the whole under the empty name."""
        if not service:
            self._serving = serving
        elif serving:
            self._stopped.discard(service)
        else:
            self._stopped.add(service)

    def serves(self, service: str) -> bool:
        """Return whether a gRPC service is healthy here."""
        return self._serving and service not in self._stopped

    def accept(self, call: Call, request: bytes) -> None:
        """Begin a call."""
        call.task = asyncio.get_running_loop().create_task(self._handle(call, request))

    async def finish(self, within_s: float) -> None:
        """Let running calls end, and cancel them when the time is over."""
        tasks = [call.task for call in self.calls if call.task is not None]
        if tasks and within_s:
            await asyncio.wait(tasks, timeout=within_s)
        for task in tasks:
            task.cancel()

    async def _handle(self, call: Call, request: bytes) -> None:
        context = ServerContext(call)
        self.calls[call] = None
        if call.deadline is not None:
            loop = asyncio.get_running_loop()
            call.timer = loop.call_at(call.deadline, call.cancel)
        try:
            details = _Details(call.method, call.metadata)

            async def find(_: object) -> Any:
                return self._handlers.get(call.method)

            handler = await self.interceptor.intercept_service(find, details)  # type: ignore[arg-type]
            if handler is None:
                call.end(grpc.StatusCode.UNIMPLEMENTED, call.method)
                return
            message = handler.request_deserializer(request)  # type: ignore[misc]
            if handler.response_streaming:
                context.serialize = handler.response_serializer
                await handler.unary_stream(message, context)  # type: ignore[misc]
            else:
                answer = await handler.unary_unary(message, context)  # type: ignore[misc]
                call.send(handler.response_serializer(answer))  # type: ignore[misc]
            call.end(context.code() or grpc.StatusCode.OK, context.details())
        except aio.AbortError:
            call.end(context.code() or grpc.StatusCode.UNKNOWN, context.details())
        except asyncio.CancelledError:
            call.end(grpc.StatusCode.CANCELLED, "cancelled")
        finally:
            if call.timer is not None:
                call.timer.cancel()
            self.calls.pop(call, None)


class _Details(grpc.HandlerCallDetails):
    def __init__(self, method: str, metadata: Metadata) -> None:
        self.method = method
        self.invocation_metadata = metadata


class Call:
    """One call, as both sides see it."""

    def __init__(
        self,
        network: GrpcNetwork,
        endpoint: Endpoint,
        method: str,
        metadata: Metadata,
        deadline: float | None,
    ) -> None:
        self.endpoint = endpoint
        self.client = current_process()
        self.method = method
        self.metadata = metadata
        self.deadline = deadline
        self.task: asyncio.Task[None] | None = None
        self.timer: Any = None
        self.received: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.ended = False
        self._network = network
        self._to_server = Pipe(network.network, self.client, endpoint.process)
        self._to_client = Pipe(network.network, endpoint.process, self.client)
        network.calls[self] = None

    def begin(self, request: bytes) -> None:
        """Send the request."""
        self._to_server.send(self.endpoint.accept, self, request)

    def send(self, data: bytes) -> None:
        """Send an answer to the client."""
        self._to_client.send(self.received.put_nowait, ("message", data))

    def send_metadata(self, metadata: Metadata) -> None:
        """Send the initial metadata to the client."""
        self._to_client.send(self.received.put_nowait, ("metadata", metadata))

    def end(self, code: grpc.StatusCode, details: str) -> None:
        """Send the status to the client."""
        self._to_client.send(self.finish, code, details)

    def finish(self, code: grpc.StatusCode, details: str) -> None:
        """End the call on the side of the client."""
        if not self.ended:
            self.ended = True
            self.received.put_nowait(("end", (code, details)))
            self._network.calls.pop(self, None)

    def leave(self) -> None:
        """The client gives up the call."""
        if not self.ended:
            self.ended = True
            self._network.calls.pop(self, None)
            self._to_server.send(self.cancel)

    def cancel(self) -> None:
        """Cancel the handler."""
        if self.task is not None:
            self.task.cancel()


class ServerContext:
    """Implements what the servicers and the interceptor use of ``grpc.aio.ServicerContext``."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self.serialize: Callable[[Any], bytes] | None = None

    def invocation_metadata(self) -> Metadata:
        """Return what the client has sent."""
        return self._call.metadata

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline."""
        if self._call.deadline is None:
            return None
        return max(self._call.deadline - asyncio.get_running_loop().time(), 0.0)

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Send the initial metadata."""
        self._call.send_metadata(tuple(metadata))

    async def write(self, message: Any) -> None:
        """Send one message of a stream."""
        assert self.serialize is not None
        self._call.send(self.serialize(message))

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: object = ()
    ) -> NoReturn:
        """End the call with a status."""
        del trailing_metadata
        self._code, self._details = code, details
        raise aio.AbortError

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the status."""
        self._code = code

    def set_details(self, details: str) -> None:
        """Set the text of the status."""
        self._details = details

    def set_trailing_metadata(self, metadata: object) -> None:
        """Ignore it."""

    def code(self) -> grpc.StatusCode | None:
        """Return the status."""
        return self._code

    def details(self) -> str:
        """Return the text of the status."""
        return self._details


class GrpcNetwork:
    """The servers of all instances."""

    def __init__(self, network: Network, random: Random) -> None:
        self.network = network
        self.endpoints: dict[str, list[Endpoint]] = {}
        self.calls: dict[Call, None] = {}
        self.random = random
        network.on_cut_noticed.append(self._on_cut_noticed)

    def serve(self, endpoint: Endpoint) -> None:
        """Begin to accept calls."""
        self.endpoints.setdefault(endpoint.service, []).append(endpoint)

    def stop(self, endpoint: Endpoint) -> None:
        """Accept no more calls."""
        endpoint.draining = True
        if endpoint in self.endpoints.get(endpoint.service, []):
            self.endpoints[endpoint.service].remove(endpoint)

    def kill(self, process: Process) -> None:
        """Break the calls from and to a process that was killed."""
        for endpoints in self.endpoints.values():
            endpoints[:] = [endpoint for endpoint in endpoints if endpoint.process is not process]
        self._break(process)

    def channel(
        self, target: str, options: Sequence[tuple[str, Any]] | None = None, **_: object
    ) -> MemoryChannel:
        """Return a channel to ``<scheme>:///<service>``."""
        return MemoryChannel(self, target.rpartition("/")[2], options or ())

    def _on_cut_noticed(self, process: Process, is_bus: bool) -> None:
        if not is_bus:
            self._break(process)

    def _break(self, process: Process) -> None:
        loop = self.network.loop
        for call in list(self.calls):
            if process not in (call.client, call.endpoint.process):
                continue
            at = loop.now + self.network.delay()
            self.calls.pop(call, None)
            loop.deliver(at, call.client, call.finish, grpc.StatusCode.UNAVAILABLE, "the connection broke")
            loop.deliver(at, call.endpoint.process, call.cancel)


class MemoryChannel:
    """Implements what generated stubs use of ``grpc.aio.Channel``; ``only`` is the one instance that it calls."""

    def __init__(
        self,
        network: GrpcNetwork,
        service: str,
        options: Sequence[tuple[str, Any]] = (),
        *,
        only: Endpoint | None = None,
    ) -> None:
        self.network = network
        self._service = service
        self._only = only
        config = json.loads(dict(options).get("grpc.service_config", "{}"))
        self._takes_turns = "round_robin" in str(config.get("loadBalancingConfig"))
        self._healthy_for: str | None = config.get("healthCheckConfig", {}).get("serviceName")
        self._methods: list[dict[str, Any]] = config.get("methodConfig", [])
        self._chosen: Endpoint | None = None
        self._turn = network.random.randrange(2)

    def unary_unary(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: object
    ) -> Callable[..., UnaryCall]:
        """Return a callable for a method."""

        def call(request: Any, *, timeout: float | None = None, metadata: Any = None) -> UnaryCall:
            limit = _DEFAULT_TIMEOUT_S if timeout is None else timeout
            deadline = self.network.network.loop.now + limit
            data = request_serializer(request)

            def begin() -> Call | None:
                return self._begin(method, data, metadata, deadline)

            return UnaryCall(self, begin, deadline, self._retry_policy(method), response_deserializer)

        return call

    def unary_stream(
        self, method: str, request_serializer: Any = None, response_deserializer: Any = None, **_: object
    ) -> Callable[..., StreamCall]:
        """Return a callable for a method."""

        def call(request: Any, *, timeout: float | None = None, metadata: Any = None) -> StreamCall:
            deadline = None if timeout is None else self.network.network.loop.now + timeout
            begun = self._begin(method, request_serializer(request), metadata, deadline)
            return StreamCall(begun, response_deserializer)

        return call

    def stream_unary(self, method: str, **_: object) -> Callable[..., NoReturn]:
        """Return a callable that fails: the simulation has no such calls."""

        def call(*_: object, **__: object) -> NoReturn:
            raise NotImplementedError(method)

        return call

    def stream_stream(self, method: str, *_: object, **__: object) -> Callable[..., NoReturn]:
        """Return a callable that fails: the simulation has no such calls."""
        return self.stream_unary(method)

    async def close(self, grace: float | None = None) -> None:
        """Do nothing."""

    def _begin(self, method: str, request: bytes, metadata: Any, deadline: float | None) -> Call | None:
        endpoint = self._choose()
        if endpoint is None:
            return None
        call = Call(self.network, endpoint, method, tuple(metadata or ()), deadline)
        call.begin(request)
        return call

    def _retry_policy(self, method: str) -> dict[str, Any]:
        """Return the policy of the most specific entry for a method."""
        service, _, name = method[1:].partition("/")
        for wanted in ({"service": service, "method": name}, {"service": service}):
            for entry in self._methods:
                if wanted in entry["name"]:
                    return entry.get("retryPolicy", {})
        return {}

    def _choose(self) -> Endpoint | None:
        endpoints = self.network.endpoints.get(self._service, [])
        if self._only is not None:
            endpoints = [endpoint for endpoint in endpoints if endpoint is self._only]
        if self._healthy_for is not None:
            endpoints = [endpoint for endpoint in endpoints if endpoint.serves(self._healthy_for)]
        own = current_process()
        if self._chosen in endpoints and not self._takes_turns:
            return self._chosen
        reachable = [e for e in endpoints if not self.network.network.is_apart(own, e.process)]
        if not reachable:
            return None
        self._turn += 1
        if self._takes_turns:
            return reachable[self._turn % len(reachable)]
        self._chosen = self.network.random.choice(reachable)
        return self._chosen


def as_channel(channel: MemoryChannel) -> aio.Channel:
    """Return ``channel`` with the type that stubs expect."""
    return cast("aio.Channel", channel)


def _error(code: grpc.StatusCode, details: str) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details)


class UnaryCall:
    """The client's side of a call with one answer."""

    def __init__(
        self,
        channel: MemoryChannel,
        begin: Callable[[], Call | None],
        deadline: float,
        retries: dict[str, Any],
        deserialize: Callable[[bytes], Any],
    ) -> None:
        self._channel = channel
        self._begin = begin
        self._deadline = deadline
        self._retries = retries
        self._deserialize = deserialize

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        loop = asyncio.get_running_loop()
        attempts = self._retries.get("maxAttempts", 1)
        limit_s = _seconds(self._retries.get("perAttemptRecvTimeout", "inf"))
        pause_s = _seconds(self._retries.get("initialBackoff", "0"))
        for attempt in range(1, attempts + 1):
            try:
                return await self._attempt(min(self._deadline, loop.time() + limit_s))
            except aio.AioRpcError as error:
                silent = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and loop.time() < self._deadline
                retryable = silent or error.code() is grpc.StatusCode.UNAVAILABLE
                pause = pause_s * self._channel.network.random.random()
                if not retryable or attempt == attempts or loop.time() + pause > self._deadline:
                    raise
            await asyncio.sleep(pause)
            pause_s = min(pause_s * self._retries["backoffMultiplier"], _seconds(self._retries["maxBackoff"]))
        raise AssertionError("the last attempt raises")

    async def _attempt(self, deadline: float) -> Any:
        call = self._begin()
        if call is None:
            await asyncio.sleep(0.001)
            raise _error(grpc.StatusCode.UNAVAILABLE, "no instance accepts connections")
        answer: Any = None
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    kind, content = await call.received.get()
                    if kind == "message":
                        answer = self._deserialize(content)
                    elif kind == "end":
                        code, details = content
                        if code is not grpc.StatusCode.OK:
                            raise _error(code, details)
                        return answer
        except TimeoutError:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded") from None
        finally:
            call.leave()


def _seconds(text: str) -> float:
    return float(text.removesuffix("s"))


class StreamCall:
    """The client's side of a call with a stream of answers; a call that nothing refers to is cancelled."""

    def __init__(self, call: Call | None, deserialize: Callable[[bytes], Any]) -> None:
        self._call = call
        self._deserialize = deserialize
        self._metadata: Metadata | None = None
        self._read_ahead: list[tuple[str, Any]] = []

    async def initial_metadata(self) -> Metadata:
        """Wait for the initial metadata; none if the call ends without."""
        if self._call is None:
            return ()
        while self._metadata is None:
            kind, content = await self._call.received.get()
            if kind == "metadata":
                self._metadata = content
            else:
                self._read_ahead.append((kind, content))
                self._metadata = ()
        return self._metadata

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._answers()

    def cancel(self) -> bool:
        """Cancel the call."""
        if self._call is None or self._call.ended:
            return False
        self._call.leave()
        self._call.received.put_nowait(("end", (grpc.StatusCode.CANCELLED, "cancelled")))
        return True

    def __del__(self) -> None:
        self.cancel()

    async def _answers(self) -> AsyncIterator[Any]:
        call = self._call
        if call is None:
            await asyncio.sleep(0.001)
            raise _error(grpc.StatusCode.UNAVAILABLE, "no instance accepts connections")
        while True:
            kind, content = self._read_ahead.pop(0) if self._read_ahead else await call.received.get()
            if kind == "message":
                yield self._deserialize(content)
            elif kind == "metadata":
                self._metadata = content
            else:
                code, details = content
                if code is not grpc.StatusCode.OK:
                    raise _error(code, details)
                return
