"""``muster queue``: guarantees, limits, use and waiting jobs of queues."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from muster._cli import formatting
from muster._cli.app import LazyCommand, LazyGroup
from muster._cli.commands.apply import ApplyRequest, apply_command, apply_queues
from muster._cli.options import State, shared_options
from muster._cli.output import emit, emit_plain, print_table
from muster._cli.queue_tables import documents, queue_details, queue_table, tree_table
from muster_formats.source import yaml_text
from muster_rpc.v1 import queue_service_pb2

_HERE = "muster._cli.commands.queue"
_COMMANDS = {
    "list": LazyCommand(f"{_HERE}:list_queues", "List queues with their use and waiting jobs."),
    "tree": LazyCommand(f"{_HERE}:tree", "Draw the queues as a tree."),
    "get": LazyCommand(f"{_HERE}:get", "Show one queue."),
    "apply": LazyCommand(f"{_HERE}:apply", "Create or replace queues, all or none."),
    "delete": LazyCommand(f"{_HERE}:delete", "Delete queues without waiting or running jobs."),
}
_EXAMPLES = """\b
Examples:
  muster queue apply -f queues.yaml --dry-run
  muster queue list -o yaml > queues.yaml"""


@click.command(cls=LazyGroup, table=_COMMANDS, allow_plugins=False, epilog=_EXAMPLES)
def queue() -> None:
    """Show and change queues: guarantees, limits, use and waiting jobs."""


@click.command("list")
@shared_options
@click.pass_obj
def list_queues(state: State) -> None:
    """List queues by name; each includes its children."""
    _show(state, drawn=False)


@click.command()
@shared_options
@click.pass_obj
def tree(state: State) -> None:
    """Draw the tree of queues."""
    _show(state, drawn=True)


@click.command()
@click.argument("name")
@shared_options
@click.pass_obj
def get(state: State, name: str) -> None:
    """Show one queue: its definition and its status."""
    with state.client() as client:
        answer = client.queue(name)
    match state.output:
        case "name":
            click.echo(answer.queue.spec.name)
        case "table":
            for label, value in queue_details(answer.queue, time.time()):
                click.echo(f"{label + ':':<15}{value}")
            click.echo(f"{'Version:':<15}{_version(answer.applied)}")
            _warn(state, answer.applied)
        case _:
            _emit(state, [answer.queue], alone=True)


@apply_command("Documents of kind Queue.")
def apply(ctx: click.Context, state: State, application: ApplyRequest) -> None:
    """Create or replace queues by documents of kind Queue, all or none.

    Waiting jobs move to the queues of the new tree at once; running jobs continue, even above a new limit.
    """
    apply_queues(ctx, state, application)


@click.command()
@click.argument("names", metavar="QUEUE...", nargs=-1, required=True)
@click.option("--expected-version", type=click.IntRange(0), metavar="N", help="Apply only over this version.")
@shared_options
@click.pass_obj
def delete(state: State, names: Sequence[str], expected_version: int | None) -> None:
    """Delete queues; refused while they have waiting or running jobs, or children."""
    with state.client() as client:
        for name in names:
            answer = client.delete_queue(name, expected_revision=expected_version)
            expected_version = None if expected_version is None else answer.applied.revision
            match state.output:
                case "name":
                    click.echo(name)
                case "table":
                    click.echo(f"{name} deleted: version {answer.applied.revision} is in force")
                case _:
                    emit(answer, state.output)


def _show(state: State, *, drawn: bool) -> None:
    with state.client() as client:
        queues = list(client.queues())
        version = client.queue("default").applied
    match state.output:
        case "name":
            for found in queues:
                click.echo(found.spec.name)
        case "table":
            print_table(state.out, (tree_table if drawn else queue_table)(queues, time.time()))
            if not version.revision:
                state.note(
                    "no queues were applied yet: all jobs share one queue, and queue names are ignored"
                )
            _warn(state, version)
        case _:
            _emit(state, queues, alone=False)


def _emit(state: State, queues: Sequence[queue_service_pb2.Queue], *, alone: bool) -> None:
    shown = documents(queues)
    if state.output == "yaml":
        click.echo(yaml_text(shown), nl=False)
    else:
        emit_plain(shown[0] if alone else shown, state.output)


def _version(version: queue_service_pb2.AppliedQueues) -> str:
    if not version.revision:
        return "no queues were applied yet"
    by = f" by {version.applied_by}" if version.applied_by else ""
    return f"{version.revision} of all queues, applied {formatting.moment(version.applied_at)}{by}"


def _warn(state: State, version: queue_service_pb2.AppliedQueues) -> None:
    if version.error:
        state.err.print(f"muster: {version.error}", style="yellow", soft_wrap=True)
