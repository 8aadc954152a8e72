"""The server interceptor of every gRPC call: a span, a deadline, metrics, and no stack traces to clients.

Health and reflection are exempt: they are called all the time and belong to no trace.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import NoReturn, Self, TypeVar, cast

import grpc
from grpc import aio
from prometheus_client import Counter, Histogram

from muster_service.logs import fields
from muster_service.metrics import Metrics
from muster_service.trace_context import HEADER as TRACEPARENT, SpanRef, extract
from muster_service.tracing import LiveSpan, Telemetry


class CallMeters:
    """The metrics of all methods."""

    def __init__(self, metrics: Metrics) -> None:
        labels = ("service", "method")
        self.handled = metrics.counter("muster_grpc_handled", "calls answered", (*labels, "code"))
        self.durations = metrics.histogram(
            "muster_grpc_server_duration_seconds", "time to answer a call", (*labels, "code")
        )
        self.running = metrics.gauge("muster_grpc_running", "calls in progress", labels)
        self._methods: dict[str, MethodMeters] = {}

    def of(self, method: str) -> MethodMeters:
        """Return the metrics of a method, `/package.Service/Method`."""
        if method not in self._methods:
            self._methods[method] = MethodMeters(self, method)
        return self._methods[method]


class MethodMeters:
    """The metrics of one method, `/package.Service/Method`.

    Attributes:
        method: its full name.
        name: its short name.
        attributes: the attributes of its spans.
    """

    def __init__(self, meters: CallMeters, method: str) -> None:
        service, _, short = method[1:].partition("/")
        self.method = method
        self.name = short
        self.attributes: Mapping[str, str] = {
            "rpc.system": "grpc",
            "rpc.service": service,
            "rpc.method": short,
        }
        self.running = meters.running.labels(service, short)
        self._service = service
        self._meters = meters
        self._ended: dict[str, tuple[Counter, Histogram]] = {}
        # Counters of errors exist before the first error; histograms of them are many series for few calls.
        for code in sorted(status.name for status in _OUR_FAULT):
            meters.handled.labels(service, short, code)
        self._of(grpc.StatusCode.OK.name)

    def ended(self, code: str, duration_s: float) -> None:
        """Count a call that ended with this status."""
        handled, durations = self._ended.get(code) or self._of(code)
        handled.inc()
        durations.observe(duration_s)

    def _of(self, code: str) -> tuple[Counter, Histogram]:
        labels = (self._service, self.name, code)
        ended = self._meters.handled.labels(*labels), self._meters.durations.labels(*labels)
        self._ended[code] = ended
        return ended


log = logging.getLogger(__name__)

_UNTOUCHED = ("/grpc.health.", "/grpc.reflection.")
_OUR_FAULT = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)

_STREAMING = (grpc.unary_stream_rpc_method_handler, grpc.stream_stream_rpc_method_handler)
_SINGLE = (grpc.unary_unary_rpc_method_handler, grpc.stream_unary_rpc_method_handler)

Q = TypeVar("Q")
A = TypeVar("A")
Context = aio.ServicerContext[object, object]
UnaryBehaviour = Callable[[object, Context], Awaitable[object]]
StreamBehaviour = Callable[[object, Context], "AsyncGenerator[object] | Awaitable[None]"]


class CallInterceptor(aio.ServerInterceptor):
    """Wraps every call of a host.

    Args:
        telemetry: for the calls' spans.
        metrics: for counters.
        default_timeout_s: the deadline of a call without one.
        stream_timeout_s: the same for streaming calls; None means none.
    """

    def __init__(
        self,
        *,
        telemetry: Telemetry,
        metrics: Metrics,
        default_timeout_s: float,
        stream_timeout_s: float | None,
    ) -> None:
        self._telemetry = telemetry
        self._default_timeout_s = default_timeout_s
        self._stream_timeout_s = stream_timeout_s
        self._streams: set[asyncio.Timeout] = set()
        self._draining = False
        self._wrappers: dict[str, tuple[object, object]] = {}
        self._meters = CallMeters(metrics)

    def prepare(self, service: str, methods: Iterable[str]) -> None:
        """Create the metrics of the methods of a gRPC service, so that they exist before the first call."""
        for method in methods:
            if not (full := f"/{service}/{method}").startswith(_UNTOUCHED):
                self._meters.of(full)

    def end_streams(self, within_s: float) -> None:
        """Let open streams run for `within_s` seconds, then end them with UNAVAILABLE, so that their clients call another instance."""
        self._draining = True
        for scope in self._streams:
            # A stream that is ending already may take its time.
            if not scope.expired():
                scope.reschedule(asyncio.get_running_loop().time() + within_s)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Q, A] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Q, A] | None:
        """Return the wrapped handler of the call."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or method.startswith(_UNTOUCHED):
            return handler
        known = self._wrappers.get(method)
        if known is None or known[0] is not handler:
            known = self._wrappers[method] = (handler, self._wrapped(handler, method))
        return cast("grpc.RpcMethodHandler[Q, A]", known[1])

    def _wrapped(self, handler: grpc.RpcMethodHandler[Q, A], method: str) -> grpc.RpcMethodHandler[Q, A]:
        if handler.response_streaming:
            streaming = cast("StreamBehaviour", handler.stream_stream or handler.unary_stream)
            make = _STREAMING[handler.request_streaming]
            behaviour = self._stream(streaming, method)
        else:
            single = cast("UnaryBehaviour", handler.stream_unary or handler.unary_unary)
            make = _SINGLE[handler.request_streaming]
            behaviour = self._single(single, method)
        return make(behaviour, handler.request_deserializer, handler.response_serializer)

    def _single(self, behaviour: UnaryBehaviour, method: str) -> UnaryBehaviour:
        meters = self._meters.of(method)

        async def call(request: object, context: Context) -> object:
            async with self._around(meters, context, self._default_timeout_s):
                return await behaviour(request, context)

        return call

    def _stream(
        self, behaviour: StreamBehaviour, method: str
    ) -> Callable[[object, Context], Awaitable[None]]:
        meters = self._meters.of(method)

        # A coroutine, not a generator: a generator whose client left is closed later by the garbage collector in another
        # task, where neither span nor timeout can be ended properly.
        async def call(request: object, context: Context) -> None:
            async with self._around(meters, context, self._stream_timeout_s) as around:
                self._streams.add(around.scope)
                try:
                    answers = behaviour(request, context)
                    # A servicer either yields its answers or is a coroutine that writes them to the context.
                    if isinstance(answers, AsyncGenerator):
                        async with aclosing(answers):
                            async for answer in answers:
                                await context.write(answer)
                    else:
                        await answers
                finally:
                    self._streams.discard(around.scope)

        return call

    def _around(self, meters: MethodMeters, context: Context, timeout_s: float | None) -> _Around:
        return _Around(
            telemetry=self._telemetry,
            meters=meters,
            context=context,
            timeout_s=timeout_s,
            is_draining=lambda: self._draining,
        )


class _Around:
    """The context of one call; a class, because it is entered for each call and generators cost several times as much."""

    def __init__(
        self,
        *,
        telemetry: Telemetry,
        meters: MethodMeters,
        context: Context,
        timeout_s: float | None,
        is_draining: Callable[[], bool],
    ) -> None:
        self._meters = meters
        self._context = context
        self._is_draining = is_draining
        remaining = cast("float | None", context.time_remaining())
        self._timeout_s = timeout_s
        self.scope = asyncio.timeout(timeout_s if remaining is None else None)
        self._span = telemetry.span(
            meters.name,
            parent=_caller(context),
            attributes=meters.attributes,
            role="server",
            note_exceptions=False,
        )
        self._started = time.perf_counter()

    async def __aenter__(self) -> Self:
        self._meters.running.inc()
        self._live = self._span.__enter__()
        await self.scope.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if await self._is_late(kind, error, trace):
                await self._refuse_late()
            if error is not None:
                await self._hide(error)
        finally:
            status = _status(self._context)
            _note_status(self._live, status, self._context)
            self._span.__exit__(kind, error, trace)
            self._meters.running.dec()
            self._meters.ended(status.name, time.perf_counter() - self._started)

    async def _is_late(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            await self.scope.__aexit__(kind, error, trace)
        except TimeoutError:
            return True
        return False

    async def _refuse_late(self) -> NoReturn:
        if self._is_draining():
            await self._context.abort(
                grpc.StatusCode.UNAVAILABLE, "this instance is shutting down; call again"
            )
        await self._context.abort(
            grpc.StatusCode.DEADLINE_EXCEEDED,
            f"the call had no deadline and took longer than {self._timeout_s} s",
        )

    async def _hide(self, error: BaseException) -> None:
        """Convert exceptions; no stack traces to clients."""
        if isinstance(error, asyncio.CancelledError):
            late = self._context.time_remaining() == 0
            self._context.set_code(grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED)
        elif isinstance(error, aio.InternalError):
            # An answer to a caller that has left is not a failure.
            log.debug("a caller has left", exc_info=error, extra=fields(method=self._meters.method))
            await self._context.abort(grpc.StatusCode.CANCELLED, "the caller has left")
        elif isinstance(error, Exception) and not isinstance(error, aio.AbortError):
            error_id = secrets.token_hex(4)
            log.error(
                "a call failed", exc_info=error, extra=fields(method=self._meters.method, error_id=error_id)
            )
            await self._context.abort(
                grpc.StatusCode.INTERNAL, f"internal error {error_id}; the service's log has the details"
            )


def _caller(context: Context) -> SpanRef | None:
    metadata = cast("tuple[tuple[str, str | bytes], ...]", context.invocation_metadata() or ())
    # Metadata names are lower-case on the wire.
    carried = next(
        (value for name, value in metadata if name == TRACEPARENT and isinstance(value, str)), None
    )
    return None if carried is None else extract({TRACEPARENT: carried})


def _status(context: Context) -> grpc.StatusCode:
    return cast("grpc.StatusCode | None", context.code()) or grpc.StatusCode.OK


def _note_status(span: LiveSpan, status: grpc.StatusCode, context: Context) -> None:
    span.set("rpc.grpc.status_code", cast("int", status.value[0]))
    if status in _OUR_FAULT:
        span.fail(str(context.details() or status.name))
