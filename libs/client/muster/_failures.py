"""Convert failed calls to exceptions."""

from __future__ import annotations

import re
from typing import cast

import grpc

from muster.errors import InvalidDocument, MusterError, NotFound, Refused, Unavailable
from muster_rpc.convert import problem_from_proto
from muster_rpc.errors import problem_count, problems_of
from muster_rpc.v1 import job_service_pb2

_NO_CONNECTION = re.compile(
    r"failed to connect|connection refused|socket closed|connection reset|broken pipe|no route to host"
    r"|network is unreachable|name resolution|dns resolution|handshake|endpoint closing|goaway",
    re.IGNORECASE,
)
_BROKEN_STREAM = re.compile(r"RST_STREAM|stream removed|socket closed|connection reset", re.IGNORECASE)
_REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
_UNAVAILABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})


def is_transient(error: grpc.RpcError) -> bool:
    """Return whether a retry may succeed soon: the server is unavailable, draining, or the connection broke."""
    code, details = _status(error)
    return code in _UNAVAILABLE or bool(_BROKEN_STREAM.search(details))


def error_of(error: grpc.RpcError, *, address: str) -> MusterError:
    """Return the exception for a failed call to ``address``."""
    code, details = _status(error)
    if code is grpc.StatusCode.NOT_FOUND:
        return NotFound(details)
    if code is grpc.StatusCode.INVALID_ARGUMENT and (problems := problems_of(error)):
        return InvalidDocument(details, problems, total=problem_count(error))
    if code in _REFUSALS:
        return Refused(details)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return Unavailable(f"Muster at {address} did not answer in time")
    if _NO_CONNECTION.search(details):
        return Unavailable(f"cannot reach Muster at {address}: is `muster up` running?")
    if is_transient(error):
        return Unavailable(f"Muster at {address} is not ready: {details}")
    return MusterError(f"Muster at {address} failed: {details or code.name}")


def completed(refused: InvalidDocument, answer: job_service_pb2.ValidateJobResponse) -> InvalidDocument:
    """Return the rejection with every problem of a validation, if the status could not carry all."""
    problems = [problem_from_proto(problem) for problem in answer.problems]
    return InvalidDocument(str(refused), problems or refused.problems, total=refused.total)


def _status(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    # Every error of a call is a Call too (or behaves like one in asyncio); the base class does not declare it.
    call = cast("grpc.Call", error)
    return call.code(), call.details() or ""
