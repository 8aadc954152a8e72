"""What happens around every call that a service answers: a span, a deadline, two metrics, and no stack traces outside.

An interceptor is the one seam for all of it, so a handler holds nothing but its own concern. Health and reflection are
left alone: they are asked all the time and are nobody's story.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar, cast

import grpc
from grpc import aio

from muster_runtime.logs import fields
from muster_runtime.metrics import Metrics
from muster_runtime.telemetry import LiveSpan, SpanRef, Telemetry, extract

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
        telemetry: where the calls' spans go.
        metrics: where they are counted.
        default_timeout_s: the deadline of a call whose client gave none.
        stream_timeout_s: the same for calls that answer with a stream; None lets them run.
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
        self._handled = metrics.counter("muster_grpc_handled", "calls answered", ("method", "code"))
        self._seconds = metrics.histogram("muster_grpc_seconds", "time to answer a call", ("method",))
        self._running = metrics.gauge("muster_grpc_running", "calls being answered now", ("method",))

    def end_streams(self, within_s: float) -> None:
        """Let open streams run for `within_s` seconds, then end them with UNAVAILABLE: their clients call elsewhere."""
        self._draining = True
        for scope in self._streams:
            scope.reschedule(asyncio.get_running_loop().time() + within_s)

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Q, A] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Q, A] | None":
        """Return the handler of the call, wrapped."""
        handler = await continuation(handler_call_details)
        method = str(handler_call_details.method)
        if handler is None or method.startswith(_UNTOUCHED):
            return handler
        return self._wrapped(handler, method)

    def _wrapped(self, handler: "grpc.RpcMethodHandler[Q, A]", method: str) -> "grpc.RpcMethodHandler[Q, A]":
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
        async def call(request: object, context: Context) -> object:
            async with self._around(method, context, self._default_timeout_s):
                return await behaviour(request, context)

        return call

    def _stream(
        self, behaviour: StreamBehaviour, method: str
    ) -> Callable[[object, Context], Awaitable[None]]:
        # A coroutine and not a generator: a generator whose client went away is closed later, by the garbage collector, in
        # another task, where neither the span nor the time-out can be left in order.
        async def call(request: object, context: Context) -> None:
            async with self._around(method, context, self._stream_timeout_s) as scope:
                self._streams.add(scope)
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
                    self._streams.discard(scope)

        return call

    @asynccontextmanager
    async def _around(
        self, method: str, context: Context, timeout_s: float | None
    ) -> AsyncGenerator[asyncio.Timeout]:
        started = time.perf_counter()
        service, _, short = method[1:].partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": short}
        self._running.labels(short).inc()
        try:
            with self._telemetry.span(
                short, parent=_caller(context), attributes=attributes, role="server", note_exceptions=False
            ) as span:
                try:
                    async with _no_stack_traces(method, context), self._bounded(context, timeout_s) as scope:
                        yield scope
                finally:
                    status = _status(context)
                    _note_status(span, status, context)
        finally:
            self._running.labels(short).dec()
            self._seconds.labels(short).observe(time.perf_counter() - started)
            self._handled.labels(short, _status(context).name).inc()

    @asynccontextmanager
    async def _bounded(self, context: Context, timeout_s: float | None) -> AsyncGenerator[asyncio.Timeout]:
        remaining = cast("float | None", context.time_remaining())
        scope = asyncio.timeout(timeout_s if remaining is None else None)
        try:
            async with scope:
                yield scope
        except TimeoutError:
            if not scope.expired():
                raise
            if self._draining:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "this copy is shutting down; call again")
            await context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"the call gave no deadline and took longer than {timeout_s} s",
            )


@asynccontextmanager
async def _no_stack_traces(method: str, context: Context) -> AsyncGenerator[None]:
    try:
        yield
    except aio.AbortError:
        raise
    except asyncio.CancelledError:
        late = context.time_remaining() == 0
        context.set_code(grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED)
        raise
    except Exception:
        error_id = secrets.token_hex(4)
        log.exception("a call failed", extra=fields(method=method, error_id=error_id))
        await context.abort(
            grpc.StatusCode.INTERNAL, f"internal error {error_id}; the service's log has the details"
        )


def _caller(context: Context) -> SpanRef | None:
    metadata = cast("tuple[tuple[str, str | bytes], ...]", context.invocation_metadata() or ())
    return extract({name: value for name, value in metadata if isinstance(value, str)})


def _status(context: Context) -> grpc.StatusCode:
    return cast("grpc.StatusCode | None", context.code()) or grpc.StatusCode.OK


def _note_status(span: LiveSpan, status: grpc.StatusCode, context: Context) -> None:
    span.set("rpc.grpc.status_code", cast("int", status.value[0]))
    if status in _OUR_FAULT:
        span.fail(str(context.details() or status.name))
