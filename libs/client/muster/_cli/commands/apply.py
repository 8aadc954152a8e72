"""``muster apply`` for queues and platform defaults, and ``muster defaults``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click
import msgspec

from muster._cli import formatting
from muster._cli.documents import CLIENT, SERVER, InputDocument, read_document, refuse, warn
from muster._cli.options import State, shared_options
from muster._cli.output import emit
from muster.errors import InvalidDocument
from muster_formats.defaults import defaults_text, parse_defaults
from muster_formats.queues import holds_queues, parse_queues, queues_text
from muster_rpc.convert import problem_from_proto, queue_change_from_proto
from muster_rpc.v1 import defaults_service_pb2, queue_service_pb2

if TYPE_CHECKING:
    from muster._sync_client import Client

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A", queue_service_pb2.ApplyQueuesResponse, defaults_service_pb2.ApplyDefaultsResponse)


class ApplyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to apply, and how: ``dry_run`` is who validates it, ``expected_version`` the version that it may replace."""

    given: InputDocument
    prune: bool
    dry_run: str | None
    expected_version: int | None


ApplyHandler = Callable[[click.Context, State, ApplyRequest], None]


def apply_command(what: str, *, epilog: str | None = None) -> Callable[[ApplyHandler], click.Command]:
    """Build a command ``apply`` for ``what`` whose options become an ``ApplyRequest``."""

    def make(command: ApplyHandler) -> click.Command:
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
            application = ApplyRequest(
                given=given, prune=prune, dry_run=dry_run, expected_version=expected_version
            )
            command(ctx, state, application)

        return apply

    return make


def apply_queues(ctx: click.Context, state: State, application: ApplyRequest) -> None:
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

    def validate_online(client: Client) -> queue_service_pb2.ApplyQueuesResponse:
        return client.apply_queues(
            given.source,
            source_name=given.name,
            prune=application.prune,
            dry_run=dry_run is not None,
            expected_revision=application.expected_version,
        )

    answer = answered(ctx, state, given, validate_online)
    match state.output:
        case "table":
            for line in _queue_lines(answer, dry_run=dry_run is not None):
                click.echo(line)
        case "name":
            for change in answer.changes:
                click.echo(change.name)
        case _:
            emit(answer, state.output)


def answered(
    ctx: click.Context, state: State, given: InputDocument, validate_online: Callable[[Client], A]
) -> A:
    """Return the answer of ``validate_online`` about a document and print its warnings; exit if the document is rejected."""
    try:
        with state.client() as client:
            answer = validate_online(client)
    except InvalidDocument as refused:
        refuse(ctx, state, given, refused.problems)
    warn(state, given, [problem_from_proto(warning) for warning in answer.warnings])
    return answer


def _queue_lines(answer: queue_service_pb2.ApplyQueuesResponse, *, dry_run: bool) -> list[str]:
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


_EXAMPLES = """\b
Examples:
  muster apply -f queues.yaml
  muster apply -f polyaxon_config.yml --dry-run
  muster apply -f defaults.yaml --expected-version 3"""


@apply_command("Queues, or defaults: a polyaxon_config.yml, or the native form.", epilog=_EXAMPLES)
def apply(ctx: click.Context, state: State, application: ApplyRequest) -> None:
    """Create or replace queues (kind: Queue), or replace the platform defaults (kind: Defaults, polyaxon_config.yml).

    Defaults are node selectors, tolerations and affinities of experiments, jobs and builds. They fill empty fields of
    jobs at validation; jobs validated earlier keep theirs.
    """
    if holds_queues(application.given.content):
        apply_queues(ctx, state, application)
        return
    if application.prune:
        raise click.UsageError("--prune applies to queues, and the document contains none", ctx)
    _apply_defaults(ctx, state, application)


@click.command()
@click.option(
    "--version",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="An earlier version.  [the current one]",
)
@shared_options
@click.pass_obj
def defaults(state: State, version: int | None) -> None:
    """Show the platform defaults with version, author and time."""
    with state.client() as client:
        found = client.get_defaults(version or 0)
    match state.output:
        case "table":
            if not found.revision:
                state.note("no defaults were applied yet; apply some with `muster apply -f FILE`")
                return
            by = f" by {found.applied_by}" if found.applied_by else ""
            click.echo(f"# version {found.revision}, applied {formatting.moment(found.applied_at)}{by}")
            click.echo(found.document, nl=False)
        case "name":
            click.echo(found.revision)
        case _:
            emit(found, state.output)


def _apply_defaults(ctx: click.Context, state: State, application: ApplyRequest) -> None:
    given, dry_run = application.given, application.dry_run
    parsed = parse_defaults(given.content)
    if parsed.defaults is None:
        refuse(ctx, state, given, parsed.problems)
    if dry_run == CLIENT:
        warn(state, given, parsed.problems)
        click.echo(defaults_text(parsed.defaults), nl=False)
        return

    def validate_online(client: Client) -> defaults_service_pb2.ApplyDefaultsResponse:
        return client.apply_defaults(
            given.source,
            source_name=given.name,
            dry_run=dry_run is not None,
            expected_revision=application.expected_version,
        )

    answer = answered(ctx, state, given, validate_online)
    match state.output:
        case "table":
            click.echo(_defaults_text(answer, dry_run=dry_run is not None))
        case "name":
            click.echo(answer.defaults.revision)
        case _:
            emit(answer, state.output)


def _defaults_text(answer: defaults_service_pb2.ApplyDefaultsResponse, *, dry_run: bool) -> str:
    version = answer.defaults.revision
    if not answer.changed:
        return f"nothing changes: version {version} has these defaults already"
    if dry_run:
        return f"{answer.defaults.document}would be version {version}; nothing was applied"
    return f"version {version} is in force"
