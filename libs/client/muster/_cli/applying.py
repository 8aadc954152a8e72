"""Applying documents of the platform: the options, and what becomes of documents of queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, ParamSpec, TypeVar

import click

from muster._cli import exits
from muster._cli.documents import Given
from muster._cli.dry_run import CLIENT, SERVER
from muster._cli.output import emit
from muster._cli.problems import counted, print_problems
from muster._cli.state import State
from muster.errors import InvalidDocument
from muster_core.models import Problem
from muster_core.queue_documents import parse_queues, queues_text
from muster_rpc.convert import problem_from_proto, queue_change_from_proto
from muster_rpc.v1 import queue_service_pb2

P = ParamSpec("P")
R = TypeVar("R")


def apply_options(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """The options of a command that applies ``what``."""

    def add(command: Callable[P, R]) -> Callable[P, R]:
        for option in (
            click.option(
                "--expected-version",
                type=click.IntRange(0),
                metavar="N",
                help="Only over this version, 0 for the first one.",
            ),
            click.option("--prune", is_flag=True, help="Of queues: delete every one that is not given."),
            click.option(
                "--dry-run",
                is_flag=False,
                flag_value=SERVER,
                type=click.Choice((SERVER, CLIENT)),
                help="Only say what would be; =client asks nobody.",
            ),
            click.option("-f", "--file", required=True, metavar="FILE|-", help=what),
        ):
            command = option(command)
        return command

    return add


def apply_queues(
    ctx: click.Context,
    state: State,
    given: Given,
    *,
    prune: bool,
    dry_run: str | None,
    expected_version: int | None,
) -> None:
    """Apply a document of queues, and say what became of each."""
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
    try:
        with state.client() as client:
            answer = client.apply_queues(
                given.source,
                source_name=given.name,
                prune=prune,
                dry_run=dry_run is not None,
                expected_version=expected_version,
            )
    except InvalidDocument as refused:
        refuse(ctx, state, given, refused.problems)
    warn(state, given, [problem_from_proto(warning) for warning in answer.warnings])
    match state.output:
        case "table":
            for line in _told(answer, dry_run=dry_run is not None):
                click.echo(line)
        case "name":
            for change in answer.changes:
                click.echo(change.name)
        case _:
            emit(answer, state.output)


def warn(state: State, given: Given, warnings: Sequence[Problem]) -> None:
    """Show what is odd about a document."""
    if warnings:
        print_problems(state.err, warnings, text=given.text, source_name=given.name)


def refuse(ctx: click.Context, state: State, given: Given, problems: Sequence[Problem]) -> NoReturn:
    """Show what is wrong with a document, and end."""
    print_problems(state.err, problems, text=given.text, source_name=given.name)
    state.err.print(f"muster: {given.name} is refused: {counted(problems)}", soft_wrap=True)
    ctx.exit(exits.REFUSED)


def _told(answer: queue_service_pb2.ApplyQueuesResponse, *, dry_run: bool) -> list[str]:
    would = "would be " if dry_run else ""
    kinds = {change.name: queue_change_from_proto(change) for change in answer.changes}
    lines = [f"{name} {would}{kind or 'applied'}" for name, kind in kinds.items()]
    version = answer.version.version
    if all(kind == "unchanged" for kind in kinds.values()):
        return [*lines, f"nothing changes: these are in version {version} of the queues"]
    if dry_run:
        return [*lines, f"would be version {version} of the queues; nothing was applied"]
    return [*lines, f"version {version} of the queues is in force"]
