"""Documents named on the command line: reading, validation, dry runs."""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
import msgspec

from muster._cli import exit_codes
from muster._cli.options import State
from muster._cli.output import counted, print_problems
from muster._files import AT_MOST, beginning_of
from muster.errors import Unavailable
from muster_core.models import Job, Problem, Severity, Template
from muster_formats import read_document as parse_document
from muster_formats.native import native_text, to_native

if TYPE_CHECKING:
    from muster._sync_client import Client

STANDARD_INPUT = "-"


class InputDocument(msgspec.Struct, frozen=True):
    """A document and the name that problems show. ``text`` is for printing lines: bytes that are not UTF-8 are replaced in it."""

    source: Path | bytes
    text: str
    name: str

    @property
    def content(self) -> bytes:
        """The bytes of the document."""
        return self.source if isinstance(self.source, bytes) else beginning_of(self.source)


def read_document(file: str, *, at_most: int = AT_MOST) -> InputDocument:
    """Read a file, or standard input for ``-``: its first ``at_most`` bytes, -1 for all.

    Raises ``OSError`` if it cannot be read or is a folder.
    """
    if file == STANDARD_INPUT:
        content = sys.stdin.buffer.read(at_most)
        return InputDocument(content, content.decode(errors="replace"), "<stdin>")
    path = Path(file)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder is not a document; name the files in it", file)
    with path.open("rb") as opened:
        return InputDocument(path, opened.read(at_most).decode(errors="replace"), file)


class ValidatedDocument(msgspec.Struct, frozen=True):
    """The jobs of one document, or its problems."""

    given: InputDocument
    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...]

    @property
    def refused(self) -> bool:
        """Whether the document has errors."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)


def validate_offline(given: InputDocument, namespace: str) -> ValidatedDocument:
    """Validate a document offline, without platform defaults."""
    parsed = parse_document(given.content, namespace=namespace, source_name=given.name)
    return ValidatedDocument(given, parsed.jobs, parsed.problems)


def validate_online(client: Client, given: InputDocument) -> ValidatedDocument:
    """Validate a document on the server, with platform defaults."""
    from muster.errors import InvalidDocument  # noqa: PLC0415 (as below)
    from muster_rpc.convert import job_from_proto, problem_from_proto  # noqa: PLC0415 (a check without a server needs no protobuf)

    try:
        answer = client.validate(given.source, source_name=given.name)
    except InvalidDocument as refused:
        return ValidatedDocument(given, (), refused.problems)
    problems = tuple(problem_from_proto(problem) for problem in answer.problems)
    return ValidatedDocument(given, tuple(job_from_proto(job) for job in answer.jobs), problems)


def print_document_problems(state: State, validated: ValidatedDocument) -> None:
    """Print every problem with its line and a caret to standard error."""
    if validated.problems:
        print_problems(
            state.err, validated.problems, text=validated.given.text, source_name=validated.given.name
        )


def report(state: State, validated_documents: Sequence[ValidatedDocument]) -> None:
    """Print the result of ``validate``: one line for each document, or data."""
    match state.output:
        case "table":
            for validated in validated_documents:
                print_document_problems(state, validated)
                names = ", ".join(job.name for job in validated.jobs)
                means = f"; means {names}" if names else ""
                click.echo(f"{validated.given.name}: {counted(validated.problems)}{means}")
        case "name":
            for validated in validated_documents:
                for job in validated.jobs:
                    click.echo(job.name)
        case _:
            _emit(state.output, validated_documents)


def _emit(output: str, validated_documents: Sequence[ValidatedDocument]) -> None:
    """Return one object for one document, an array for several."""
    from google.protobuf import json_format  # noqa: PLC0415 (only for these formats)

    from muster._cli.output import emit_plain  # noqa: PLC0415
    from muster_rpc.convert import job_to_proto, problem_to_proto  # noqa: PLC0415
    from muster_rpc.v1 import job_service_pb2  # noqa: PLC0415

    results: list[object] = []
    for validated in validated_documents:
        answer = job_service_pb2.ValidateJobResponse(
            jobs=[job_to_proto(job) for job in validated.jobs],
            problems=[problem_to_proto(problem) for problem in validated.problems],
        )
        results.append({"file": validated.given.name, **json_format.MessageToDict(answer)})
    emit_plain(results[0] if len(results) == 1 else results, output)


SERVER, CLIENT, EITHER = "server", "client", "auto"
"""Who validates a dry run: the server, this command, or the server if it is reachable."""


def dry_run(state: State, given: InputDocument, validator: str) -> ValidatedDocument:
    """Print what would be submitted: native documents, or a summary."""
    validated = _find(state, given, validator)
    print_document_problems(state, validated)
    if validated.refused:
        state.err.print(f"muster: {given.name} is refused: {counted(validated.problems)}", soft_wrap=True)
        return validated
    match state.output:
        case "yaml":
            click.echo("---\n".join(native_text(job) for job in validated.jobs), nl=False)
        case "json":
            native = [to_native(job) for job in validated.jobs]
            click.echo(json.dumps(native[0] if len(native) == 1 else native, indent=2))
        case "name":
            for job in validated.jobs:
                click.echo(job.name)
        case _:
            click.echo("\n".join(_summary(job) for job in validated.jobs))
    return validated


def _find(state: State, given: InputDocument, validator: str) -> ValidatedDocument:
    if validator == CLIENT:
        return validate_offline(given, state.namespace)
    try:
        with state.client() as client:
            return validate_online(client, given)
    except Unavailable as error:
        if validator == SERVER:
            raise
        state.note(f"{error}; shown without the platform defaults")
        return validate_offline(given, state.namespace)


def _summary(job: Job) -> str:
    lines = [
        ("Name", f"{job.name} in {job.namespace}"),
        ("Kind", f"{job.kind.value}, {job.framework.value} ({job.format})"),
        ("Queue", job.queue or "(the namespace's queue)"),
    ]
    for role in job.roles:
        bounds = f" ({role.min} to {role.max})" if role.min != role.max else ""
        lines.append((role.name, f"{role.replicas}{bounds} of {_replica(role.template)}"))
    if job.built_by:
        lines.append(("After", job.built_by))
    if job.defaults:
        filled = ", ".join(job.defaults.fields) or "no defaults apply"
        lines.append(("Defaults", f"{job.defaults.category.value}, version {job.defaults.version}: {filled}"))
    width = max(len(label) for label, _ in lines) + 2
    return "".join(f"{label + ':':<{width}}{value}\n" for label, value in lines) + "not submitted"


def _replica(template: Template) -> str:
    runs = template.image or " ".join((*template.command, *template.args))
    asked = ", ".join(f"{name} {amount}" for name, amount in _amounts(template).items())
    return f"{runs} with {asked}" if asked else runs


def _amounts(template: Template) -> dict[str, str]:
    from muster_core.quantities import format_bytes, format_cpu, format_gpu  # noqa: PLC0415 (only here)

    resources = template.requests
    named = {
        "cpu": format_cpu(resources.cpu) if resources.cpu else "",
        "memory": format_bytes(resources.memory) if resources.memory else "",
        "gpu": format_gpu(resources.gpu) if resources.gpu else "",
        **{name: str(amount) for name, amount in resources.extended.items()},
    }
    return {name: amount for name, amount in named.items() if amount}


def warn(state: State, given: InputDocument, warnings: Sequence[Problem]) -> None:
    """Print the warnings of a document."""
    if warnings:
        print_problems(state.err, warnings, text=given.text, source_name=given.name)


def refuse(ctx: click.Context, state: State, given: InputDocument, problems: Sequence[Problem]) -> NoReturn:
    """Print the errors of a document, and exit."""
    print_problems(state.err, problems, text=given.text, source_name=given.name)
    state.err.print(f"muster: {given.name} is refused: {counted(problems)}", soft_wrap=True)
    ctx.exit(exit_codes.REFUSED)
