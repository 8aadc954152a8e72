"""Apply queues and platform defaults: options, requests, and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

import click
import msgspec

from muster._cli import exits
from muster._cli.documents import Given, read_document
from muster._cli.dry_run import CLIENT, SERVER
from muster._cli.output import emit
from muster._cli.problems import counted, print_problems
from muster._cli.state import State, shared_options
from muster.errors import InvalidDocument
from muster_core.models import Problem
from muster_formats.queues import parse_queues, queues_text
from muster_rpc.convert import problem_from_proto, queue_change_from_proto
from muster_rpc.v1 import defaults_service_pb2, queue_service_pb2

if TYPE_CHECKING:
    from muster._sync_client import Client

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", queue_service_pb2.ApplyQueuesResponse, defaults_service_pb2.ApplyDefaultsResponse)


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """What to apply, and how: ``dry_run`` is who validates it, ``expected_version`` the version that it may replace."""

    given: Given
    prune: bool
    dry_run: str | None
    expected_version: int | None


Applying = Callable[[click.Context, State, Application], None]


def apply_command(what: str, *, epilog: str | None = None) -> Callable[[Applying], click.Command]:
    """Build a command ``apply`` for ``what`` whose options become an ``Application``."""

    def make(command: Applying) -> click.Command:
        @click.command("apply", help=command.__doc__, epilog=epilog)
        @_options(what)
        @shared_options
        @click.pass_obj
        @click.pass_context
        def apply(
            ctx: click.Context,
            state: State,
            *,
            file: str,
            prune: bool,
            dry_run: str | None,
            expected_version: int | None,
        ) -> None:
            given = read_document(file)
            application = Application(
                given=given, prune=prune, dry_run=dry_run, expected_version=expected_version
            )
            command(ctx, state, application)

        return apply

    return make


def apply_queues(ctx: click.Context, state: State, application: Application) -> None:
    """Apply a document of queues and print what changed."""
    given, dry_run = application.given, application.dry_run
    parsed = parse_queues(given.content)
    if not parsed.queues:
        refuse(ctx, state, given, parsed.problems)
    if dry_run == CLIENT:
        warn(state, given, parsed.problems)
        click.echo(
            "\n".join(spec.name for spec in parsed.queues)
            if state.output == "name"
            else queues_text(parsed.queues).rstrip("\n")
        )
        return

    def ask(client: Client) -> queue_service_pb2.ApplyQueuesResponse:
        return client.apply_queues(
            given.source,
            source_name=given.name,
            prune=application.prune,
            dry_run=dry_run is not None,
            expected_revision=application.expected_version,
        )

    answer = answered(ctx, state, given, ask)
    match state.output:
        case "table":
            for line in _told(answer, dry_run=dry_run is not None):
                click.echo(line)
        case "name":
            for change in answer.changes:
                click.echo(change.name)
        case _:
            emit(answer, state.output)


def answered(ctx: click.Context, state: State, given: Given, ask: Callable[[Client], A]) -> A:
    """Return the answer of ``ask`` about a document and print its warnings; exit if the document is rejected."""
    try:
        with state.client() as client:
            answer = ask(client)
    except InvalidDocument as refused:
        refuse(ctx, state, given, refused.problems)
    warn(state, given, [problem_from_proto(warning) for warning in answer.warnings])
    return answer


def warn(state: State, given: Given, warnings: Sequence[Problem]) -> None:
    """Print the warnings of a document."""
    if warnings:
        print_problems(state.err, warnings, text=given.text, source_name=given.name)


def refuse(ctx: click.Context, state: State, given: Given, problems: Sequence[Problem]) -> NoReturn:
    """Print the errors of a document, and exit."""
    print_problems(state.err, problems, text=given.text, source_name=given.name)
    state.err.print(f"muster: {given.name} is refused: {counted(problems)}", soft_wrap=True)
    ctx.exit(exits.REFUSED)


def _told(answer: queue_service_pb2.ApplyQueuesResponse, *, dry_run: bool) -> list[str]:
    would = "would be " if dry_run else ""
    kinds = {change.name: queue_change_from_proto(change) for change in answer.changes}
    lines = [f"{name} {would}{kind or 'applied'}" for name, kind in kinds.items()]
    version = answer.applied.revision
    if all(kind == "unchanged" for kind in kinds.values()):
        return [*lines, f"nothing changes: version {version} of the queues has these already"]
    if dry_run:
        return [*lines, f"would be version {version} of the queues; nothing was applied"]
    return [*lines, f"version {version} of the queues is in force"]


def _options(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    def add(command: Callable[P, R]) -> Callable[P, R]:
        for option in (
            click.option(
                "--expected-version",
                type=click.IntRange(0),
                metavar="N",
                help="Apply only over this version; 0 for the first.",
            ),
            click.option(
                "--prune",
                is_flag=True,
                help="Queues only: delete every queue that the document does not contain.",
            ),
            click.option(
                "--dry-run",
                is_flag=False,
                flag_value=SERVER,
                type=click.Choice((SERVER, CLIENT)),
                help="Validate only; =client does not ask the server.",
            ),
            click.option("-f", "--file", required=True, metavar="FILE|-", help=what),
        ):
            command = option(command)
        return command

    return add
