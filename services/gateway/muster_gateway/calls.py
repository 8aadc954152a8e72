"""Helpers of the servicers: errors of the services behind the gateway, checks of requests, the name of the caller."""

from __future__ import annotations

import re
from typing import NoReturn

import grpc
from grpc import aio

from muster_core.models import Problem
from muster_core.text import one_line
from muster_rpc.calls import OPEN, ServerContext, has_begun

MAX_DOCUMENT_BYTES = 512 * 1024
ALL_NAMESPACES = "-"
"""Selects all namespaces (AIP-159)."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")


async def abort_as(error: aio.AioRpcError, context: ServerContext, service: str) -> NoReturn:
    """Abort the call with the status of a failed call to ``service``."""
    code = error.code()
    details = error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and "try again" not in details:
        details = f"{service} is unavailable; try again"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        details = f"{service} did not answer in time; try again"
    await context.abort(code, details)
    raise AssertionError("abort returned")


async def abort_full(shortage: str, context: ServerContext) -> NoReturn:
    """Abort a call that would store something with what the broker is short of."""
    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"the bus stores nothing more: {shortage}")
    raise AssertionError("abort returned")


async def forward_initial_metadata(stream: aio.Call, context: ServerContext) -> None:
    """Send initial metadata to the client as soon as the stream behind the gateway has sent its own."""
    if has_begun(await stream.initial_metadata()):
        await context.send_initial_metadata(OPEN)


def is_request_id(text: str) -> bool:
    """Return whether ``text`` is a valid request id, which becomes part of message ids."""
    return _REQUEST_ID.match(text) is not None


async def check_request_id(request_id: str, context: ServerContext) -> None:
    """Abort the call if the request id is invalid."""
    if not is_request_id(request_id):
        await context.abort(
            grpc.StatusCode.INVALID_ARGUMENT,
            "request_id: give 1 to 128 letters, digits, '.', '_' or '-'; a request id takes effect once",
        )


async def check_page_size(size: int, context: ServerContext) -> None:
    """Abort the call if the page size is negative."""
    if size < 0:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_size must not be negative")


def document_problems(text: str) -> list[Problem]:
    """Return the problems of a document that are found before parsing."""
    size = len(text.encode())
    if size <= MAX_DOCUMENT_BYTES:
        return []
    return [
        Problem(
            code="TooLarge",
            path="document",
            message="the document is too large",
            found=f"{size} bytes",
            allowed=f"at most {MAX_DOCUMENT_BYTES} bytes",
            fix="keep data out of the document",
        )
    ]


def caller_of(context: ServerContext) -> str:
    """Return the user name that the client sends. It is not authenticated, and only used for the history."""
    for key, value in context.invocation_metadata() or ():
        if key == "muster-user" and isinstance(value, str):
            return one_line(value, longest=128)
    return ""
