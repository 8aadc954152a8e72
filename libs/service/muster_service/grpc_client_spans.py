"""Client spans: one for each call of a channel that is made within a span, so that the callee's span has its caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import grpc

from muster_service.trace_context import SpanRef, current_ref
from muster_service.tracing import OpenSpan, Telemetry


class EndingCall(Protocol):
    """What a span needs of a call."""

    def add_done_callback(self, callback: Callable[[EndingCall], None]) -> None:
        """Call ``callback`` when the call has ended."""
        ...

    async def code(self) -> grpc.StatusCode:
        """Return the status, after the end of the call."""
        ...

    async def details(self) -> str | None:
        """Return the details of the status."""
        ...


class ClientSpan:
    """The span of one call, which ends with the call."""

    def __init__(self, span: OpenSpan) -> None:
        self._span = span
        self._ended: asyncio.Task[None] | None = None

    @property
    def ref(self) -> SpanRef:
        """The span, as the callee's parent."""
        return self._span.ref

    def follow(self, call: EndingCall) -> None:
        """End the span with ``call``."""
        # The callback does not refer to the call: a reference cycle would keep a call that is dropped.
        call.add_done_callback(self._end)

    def fail(self, error: BaseException) -> None:
        """End the span of a call that was not made."""
        self._span.fail(f"{type(error).__name__}: {error}")
        self._span.end()

    def _end(self, call: EndingCall) -> None:
        self._ended = asyncio.ensure_future(self._end_with_status(call, time.time_ns()))

    async def _end_with_status(self, call: EndingCall, at_ns: int) -> None:
        # The call has ended: this does not wait.
        code = await call.code()
        number: int = code.value[0]
        self._span.set("rpc.grpc.status_code", number)
        # The caller itself ends a stream that it needs no longer.
        if code not in {grpc.StatusCode.OK, grpc.StatusCode.CANCELLED}:
            self._span.fail(await call.details() or code.name)
        self._span.end(at_ns)


class ClientSpans:
    """Begins the spans of the calls of one channel."""

    def __init__(self, telemetry: Telemetry, target: str) -> None:
        self._telemetry = telemetry
        self._server = server_attributes(target)

    def begin(self, method: str) -> ClientSpan | None:
        """Begin the span of a call of ``/package.Service/Method``; None if it would belong to no trace, or is not exported."""
        if not self._telemetry.is_exporting or current_ref() is None:
            return None
        service, _, name = method.removeprefix("/").partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name, **self._server}
        return ClientSpan(self._telemetry.begin(name, attributes=attributes, role="client"))


def server_attributes(target: str) -> dict[str, str | int]:
    """Return the attributes of a gRPC target; of several addresses, all with their ports in one text."""
    scheme, separator, rest = target.partition(":///")
    address = rest if separator else scheme.removeprefix("ipv4:").removeprefix("ipv6:")
    host, _, port = address.rpartition(":")
    if "," in address or not host or not port.isdecimal():
        return {"server.address": address}
    return {"server.address": host.strip("[]"), "server.port": int(port)}
