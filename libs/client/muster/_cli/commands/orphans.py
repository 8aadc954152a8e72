"""``muster orphans``: jobs that have replicas and no record, because an older store was restored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import click

from muster._cli.app import LazyCommand, LazyGroup
from muster._cli.job_details import show_all
from muster._cli.options import State, shared_options
from muster._cli.output import emit_all, print_table
from muster._cli.tables import orphan_table
from muster._sync_client import Client
from muster.errors import MusterError
from muster_rpc.v1 import orphan_service_pb2

_HERE = "muster._cli.commands.orphans"
_COMMANDS = {
    "adopt": LazyCommand(
        f"{_HERE}:adopt", "Create the records of orphans again, so that they continue as jobs."
    ),
    "remove": LazyCommand(f"{_HERE}:remove", "End the replicas of orphans and remove their logs."),
}
_Answer = orphan_service_pb2.AdoptOrphanResponse | orphan_service_pb2.RemoveOrphanResponse


@click.command(cls=LazyGroup, table=_COMMANDS, allow_plugins=False, invoke_without_command=True)
@shared_options
@click.pass_obj
@click.pass_context
def orphans(ctx: click.Context, state: State) -> None:
    """List jobs that have replicas and no record, because an older store was restored.

    They run and hold their nodes until they are adopted or removed, or their grace period is over.
    """
    if ctx.invoked_subcommand is not None:
        return
    with state.client() as client:
        found = list(client.orphans())
    show_all(
        state,
        found,
        name_of=lambda one: one.job_id,
        otherwise="no orphans: every replica belongs to a job",
        tables=lambda shown: print_table(state.out, orphan_table(shown, time.time())),
    )


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@shared_options
@click.pass_obj
def adopt(state: State, jobs: tuple[str, ...]) -> None:
    """Create the records of orphans again, so that they continue as jobs.

    No replica is restarted. JOB is an id or a name in `muster orphans`.
    """
    with state.client() as client:
        answers = _each(client, jobs, client.adopt_orphan)
    _report(state, jobs, answers, "is adopted; see `muster watch {job_id}`")


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@shared_options
@click.pass_obj
def remove(state: State, jobs: tuple[str, ...]) -> None:
    """End the replicas of orphans and remove their logs.

    JOB is an id or a name in `muster orphans`.
    """
    with state.client() as client:
        answers = _each(client, jobs, client.remove_orphan)
    _report(state, jobs, answers, "is being removed")


def _each(client: Client, jobs: Sequence[str], call: Callable[[str], _Answer]) -> list[_Answer]:
    names: dict[str, list[str]] = {}
    for orphan in client.orphans():
        names.setdefault(orphan.name, []).append(orphan.job_id)
    return [call(_job_id(job, names)) for job in jobs]


def _job_id(job: str, names: dict[str, list[str]]) -> str:
    found = names.get(job, [job])
    if len(found) > 1:
        raise MusterError(f"{len(found)} orphans have the name {job}; give one of the ids {', '.join(found)}")
    return found[0]


def _report(state: State, jobs: Sequence[str], answers: Sequence[_Answer], what: str) -> None:
    if state.output in {"json", "yaml"}:
        emit_all(answers, state.output)
        return
    for job, answer in zip(jobs, answers, strict=True):
        text = f"{job} {what.format(job_id=answer.job_id)}"
        click.echo(answer.job_id if state.output == "name" else text)
