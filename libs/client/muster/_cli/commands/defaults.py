"""``muster apply`` and ``muster defaults``: where jobs go that do not say it themselves."""

from __future__ import annotations

from collections.abc import Sequence

import click

from muster._cli import exits, words
from muster._cli.documents import Given, read_document
from muster._cli.output import emit
from muster._cli.problems import counted, print_problems
from muster._cli.state import State, shared_options
from muster.errors import InvalidDocument
from muster_core.defaults import parse_defaults
from muster_core.models import Problem
from muster_rpc.convert import problem_from_proto
from muster_rpc.v1 import defaults_service_pb2

_EXAMPLES = """\b
Examples:
  muster apply -f polyaxon_config.yml --dry-run
  muster apply -f defaults.yaml --expected-version 3"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "-f",
    "--file",
    required=True,
    metavar="FILE|-",
    help="The defaults: a polyaxon_config.yml, or the native form.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be.")
@click.option(
    "--expected-version",
    type=click.IntRange(0),
    metavar="N",
    help="Only over this version, 0 for the first one.",
)
@shared_options
@click.pass_obj
@click.pass_context
def apply(
    ctx: click.Context, state: State, *, file: str, dry_run: bool, expected_version: int | None
) -> None:
    """Replace the platform's defaults: node selectors, tolerations and affinities of experiments, jobs and builds.

    They are filled in where a job says nothing, when it is validated; jobs that were validated before keep what they have.
    """
    given = read_document(file)
    parsed = parse_defaults(given.content)
    if parsed.defaults is None:
        _refuse(ctx, state, given, parsed.problems)
    try:
        with state.client() as client:
            answer = client.apply_defaults(
                given.source, source_name=given.name, dry_run=dry_run, expected_version=expected_version
            )
    except InvalidDocument as refused:
        _refuse(ctx, state, given, refused.problems)
        return
    warnings = [problem_from_proto(warning) for warning in answer.warnings]
    if warnings:
        print_problems(state.err, warnings, text=given.text, source_name=given.name)
    match state.output:
        case "table":
            click.echo(_told(answer, dry_run=dry_run))
        case "name":
            click.echo(answer.defaults.version)
        case _:
            emit(answer, state.output)


@click.command()
@click.option(
    "--version",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="An earlier version.  [the one in force]",
)
@shared_options
@click.pass_obj
def defaults(state: State, version: int | None) -> None:
    """Show the platform's defaults: which version, by whom and when, and what they say."""
    with state.client() as client:
        found = client.get_defaults(version or 0)
    match state.output:
        case "table":
            if not found.version:
                state.note("no defaults were applied yet; apply some with `muster apply -f FILE`")
                return
            by = f" by {found.applied_by}" if found.applied_by else ""
            click.echo(f"# version {found.version}, applied {words.moment(found.applied_at)}{by}")
            click.echo(found.document, nl=False)
        case "name":
            click.echo(found.version)
        case _:
            emit(found, state.output)


def _told(answer: defaults_service_pb2.ApplyDefaultsResponse, *, dry_run: bool) -> str:
    version = answer.defaults.version
    if not answer.changed:
        return f"nothing changes: these are the defaults of version {version}"
    if dry_run:
        return f"{answer.defaults.document}would be version {version}; nothing was applied"
    return f"version {version} is in force"


def _refuse(ctx: click.Context, state: State, given: Given, problems: Sequence[Problem]) -> None:
    print_problems(state.err, problems, text=given.text, source_name=given.name)
    state.err.print(f"muster: {given.name} is refused: {counted(problems)}", soft_wrap=True)
    ctx.exit(exits.REFUSED)
