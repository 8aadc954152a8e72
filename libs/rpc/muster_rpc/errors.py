"""Problems of a document in the details of a gRPC status.

The details have them twice: as ``google.rpc.BadRequest`` for generic clients and as ``muster.v1.ProblemList`` with every field. A status is
sent in HTTP/2 trailers, of which many clients accept at most 8 KiB, so a long list is cut: ``google.rpc.ErrorInfo`` has the number of
problems, and ``ValidateJob``, which answers in a message, has all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, TypeVar, cast

import grpc
from google.protobuf import message as protobuf
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc import aio
from grpc_status import rpc_status

from muster_core.models import Problem, Severity
from muster_rpc.convert import problem_from_proto, problem_to_proto
from muster_rpc.v1 import job_service_pb2

DETAILS_LIMIT = 6 * 1024
"""Bytes of the details of a status: what clients accept by default, without the other trailers."""

DOMAIN = "muster"
REASON = "INVALID_DOCUMENT"

_DETAILS_KEY = "grpc-status-details-bin"
_TEXT_LIMIT = 200

DetailT = TypeVar("DetailT", bound=protobuf.Message)


def invalid_argument(problems: Sequence[Problem], message: str = "") -> status_pb2.Status:
    """The INVALID_ARGUMENT status of a rejected document: errors first, then warnings, as many as fit in a trailer.

    Without a ``message`` it has the message of the first error.
    """
    ordered = sorted(problems, key=lambda problem: problem.severity is not Severity.ERROR)
    status = status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=_bounded(message or _summary(ordered)))
    request = error_details_pb2.BadRequest()
    listed = job_service_pb2.ProblemList()
    used = 0
    for problem in ordered:
        violation, full = _violation(problem), problem_to_proto(_shortened(problem))
        used += violation.ByteSize() + full.ByteSize() + 8
        if used > DETAILS_LIMIT:
            break
        request.field_violations.append(violation)
        listed.problems.append(full)
    info = error_details_pb2.ErrorInfo(
        reason=REASON, domain=DOMAIN, metadata={"problems": str(len(problems))}
    )
    for detail in (request, listed, info):
        status.details.add().Pack(detail)
    return status


async def abort_with_problems(
    context: aio.ServicerContext[object, object], problems: Sequence[Problem], message: str = ""
) -> NoReturn:
    """Abort the call with ``invalid_argument(problems, message)``."""
    status = invalid_argument(problems, message)
    await context.abort(
        grpc.StatusCode.INVALID_ARGUMENT,
        status.message,
        trailing_metadata=((_DETAILS_KEY, status.SerializeToString()),),
    )
    raise AssertionError("abort returned")


def problems_of(error: grpc.RpcError) -> list[Problem]:
    """The problems in the details of a failed call, errors first.

    A status with ``google.rpc.BadRequest`` only is accepted as well.
    """
    status = _status_of(error)
    if status is None:
        return []
    listed = _detail(status, job_service_pb2.ProblemList)
    if listed is not None:
        return [problem_from_proto(problem) for problem in listed.problems]
    request = _detail(status, error_details_pb2.BadRequest)
    violations = request.field_violations if request is not None else ()
    return [Problem(code="Invalid", path=found.field, message=found.description) for found in violations]


def problem_count(error: grpc.RpcError) -> int:
    """The number of problems, including those that did not fit in the status."""
    status = _status_of(error)
    info = _detail(status, error_details_pb2.ErrorInfo) if status is not None else None
    count = info.metadata.get("problems", "") if info is not None and info.domain == DOMAIN else ""
    return int(count) if count.isdecimal() else len(problems_of(error))


def _status_of(error: grpc.RpcError) -> status_pb2.Status | None:
    if not isinstance(error, grpc.Call | aio.AioRpcError):
        return None
    # AioRpcError has what from_call reads (code, details, trailing_metadata) without being a grpc.Call.
    call = cast("grpc.Call", error)
    try:
        return rpc_status.from_call(call)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (untyped)
    except (ValueError, protobuf.DecodeError):
        # The details contradict the status, or cannot be decoded.
        return None


def _detail(status: status_pb2.Status, kind: type[DetailT]) -> DetailT | None:
    for packed in status.details:
        detail = kind()
        if packed.Unpack(detail):
            return detail
    return None


def _violation(problem: Problem) -> error_details_pb2.BadRequest.FieldViolation:
    fix = f" ({problem.fix})" if problem.fix else ""
    description = _bounded(f"{problem.message}{fix}")
    return error_details_pb2.BadRequest.FieldViolation(field=_bounded(problem.path), description=description)


def _shortened(problem: Problem) -> Problem:
    """The problem with bounded texts, so that one long value does not displace the other problems."""
    return Problem(
        code=problem.code,
        path=_bounded(problem.path),
        message=_bounded(problem.message),
        severity=problem.severity,
        line=problem.line,
        column=problem.column,
        found=_bounded(problem.found),
        allowed=_bounded(problem.allowed),
        fix=_bounded(problem.fix),
    )


def _summary(problems: Sequence[Problem]) -> str:
    if not problems:
        return "the document is rejected"
    first = f"{problems[0].path}: {problems[0].message}" if problems[0].path else problems[0].message
    return first if len(problems) == 1 else f"{first} (and {len(problems) - 1} more)"


def _bounded(text: str, limit: int = _TEXT_LIMIT) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
