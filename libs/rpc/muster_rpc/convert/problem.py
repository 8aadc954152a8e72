"""Problems of a document, as data on the wire."""

from __future__ import annotations

from muster_core.models import Problem, Severity
from muster_rpc.convert.enums import SEVERITIES
from muster_rpc.v1 import job_pb2


def problem_to_proto(problem: Problem) -> job_pb2.Problem:
    """The problem as a message."""
    return job_pb2.Problem(
        code=problem.code,
        path=problem.path,
        message=problem.message,
        severity=SEVERITIES.to_proto(problem.severity),
        line=problem.line,
        column=problem.column,
        found=problem.found,
        allowed=problem.allowed,
        fix=problem.fix,
    )


def problem_from_proto(message: job_pb2.Problem) -> Problem:
    """The problem of a message; a severity that is not said, or not known, is an error."""
    return Problem(
        code=message.code,
        path=message.path,
        message=message.message,
        severity=SEVERITIES.from_proto(message.severity) or Severity.ERROR,
        line=message.line,
        column=message.column,
        found=message.found,
        allowed=message.allowed,
        fix=message.fix,
    )
