"""Results of a validation, online or offline, for people and programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from muster._cli.documents import Given
from muster._cli.problems import counted, print_problems
from muster_core.models import Job, Problem, Severity
from muster_formats import read_document

if TYPE_CHECKING:
    from muster._cli.state import State
    from muster._sync_client import Client


class Finding(msgspec.Struct, frozen=True):
    """The jobs of one document, or its problems."""

    given: Given
    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...]

    @property
    def refused(self) -> bool:
        """Whether the document has errors."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)


def find(given: Given, namespace: str) -> Finding:
    """Validate a document offline, without platform defaults."""
    parsed = read_document(given.content, namespace=namespace, source_name=given.name)
    return Finding(given, parsed.jobs, parsed.problems)


def ask(client: Client, given: Given) -> Finding:
    """Validate a document on the server, with platform defaults."""
    from muster.errors import InvalidDocument  # noqa: PLC0415 (as below)
    from muster_rpc.convert import job_from_proto, problem_from_proto  # noqa: PLC0415 (a check without a server needs no protobuf)

    try:
        answer = client.validate(given.source, source_name=given.name)
    except InvalidDocument as refused:
        return Finding(given, (), refused.problems)
    problems = tuple(problem_from_proto(problem) for problem in answer.problems)
    return Finding(given, tuple(job_from_proto(job) for job in answer.jobs), problems)


def show_problems(state: State, finding: Finding) -> None:
    """Print every problem with its line and a caret to standard error."""
    if finding.problems:
        print_problems(state.err, finding.problems, text=finding.given.text, source_name=finding.given.name)


def report(state: State, findings: Sequence[Finding]) -> None:
    """Print the result of ``validate``: one line for each document, or data."""
    match state.output:
        case "table":
            for finding in findings:
                show_problems(state, finding)
                names = ", ".join(job.name for job in finding.jobs)
                means = f"; means {names}" if names else ""
                click.echo(f"{finding.given.name}: {counted(finding.problems)}{means}")
        case "name":
            for finding in findings:
                for job in finding.jobs:
                    click.echo(job.name)
        case _:
            _emit(state.output, findings)


def _emit(output: str, findings: Sequence[Finding]) -> None:
    """Return one object for one document, an array for several."""
    from google.protobuf import json_format  # noqa: PLC0415 (only for these formats)

    from muster._cli.output import emit_plain  # noqa: PLC0415
    from muster_rpc.convert import job_to_proto, problem_to_proto  # noqa: PLC0415
    from muster_rpc.v1 import job_service_pb2  # noqa: PLC0415

    told: list[object] = []
    for finding in findings:
        answer = job_service_pb2.ValidateJobResponse(
            jobs=[job_to_proto(job) for job in finding.jobs],
            problems=[problem_to_proto(problem) for problem in finding.problems],
        )
        told.append({"file": finding.given.name, **json_format.MessageToDict(answer)})
    emit_plain(told[0] if len(told) == 1 else told, output)
