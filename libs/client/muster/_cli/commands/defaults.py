"""``muster apply`` for queues and platform defaults, and ``muster defaults``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muster._cli import words
from muster._cli.applying import Application, answered, apply_command, apply_queues, refuse, warn
from muster._cli.dry_run import CLIENT
from muster._cli.output import emit
from muster._cli.state import State, shared_options
from muster_formats.defaults import defaults_text, parse_defaults
from muster_formats.queues import holds_queues
from muster_rpc.v1 import defaults_service_pb2

if TYPE_CHECKING:
    from muster._sync_client import Client

_EXAMPLES = """\b
Examples:
  muster apply -f queues.yaml
  muster apply -f polyaxon_config.yml --dry-run
  muster apply -f defaults.yaml --expected-version 3"""


@apply_command("Queues, or defaults: a polyaxon_config.yml, or the native form.", epilog=_EXAMPLES)
def apply(ctx: click.Context, state: State, application: Application) -> None:
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
            click.echo(f"# version {found.revision}, applied {words.moment(found.applied_at)}{by}")
            click.echo(found.document, nl=False)
        case "name":
            click.echo(found.revision)
        case _:
            emit(found, state.output)


def _apply_defaults(ctx: click.Context, state: State, application: Application) -> None:
    given, dry_run = application.given, application.dry_run
    parsed = parse_defaults(given.content)
    if parsed.defaults is None:
        refuse(ctx, state, given, parsed.problems)
    if dry_run == CLIENT:
        warn(state, given, parsed.problems)
        click.echo(defaults_text(parsed.defaults), nl=False)
        return

    def ask(client: Client) -> defaults_service_pb2.ApplyDefaultsResponse:
        return client.apply_defaults(
            given.source,
            source_name=given.name,
            dry_run=dry_run is not None,
            expected_revision=application.expected_version,
        )

    answer = answered(ctx, state, given, ask)
    match state.output:
        case "table":
            click.echo(_told(answer, dry_run=dry_run is not None))
        case "name":
            click.echo(answer.defaults.revision)
        case _:
            emit(answer, state.output)


def _told(answer: defaults_service_pb2.ApplyDefaultsResponse, *, dry_run: bool) -> str:
    version = answer.defaults.revision
    if not answer.changed:
        return f"nothing changes: version {version} has these defaults already"
    if dry_run:
        return f"{answer.defaults.document}would be version {version}; nothing was applied"
    return f"version {version} is in force"
