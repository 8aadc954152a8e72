"""``muster list``: the jobs there are."""

from __future__ import annotations

import time

import click

from muster._cli import words
from muster._cli.lists import job_table
from muster._cli.output import emit_all, emit_line
from muster._cli.state import State, shared_options
from muster._cli.tables import print_table
from muster.client import Client
from muster_core.models import Phase
from muster_rpc.convert import phase_from_proto
from muster_rpc.v1 import job_pb2


@click.command("list")
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice([phase.value for phase in Phase], case_sensitive=False),
    help="Only jobs in this phase; may be repeated.",
)
@click.option("--queue", default="", metavar="NAME", help="Only jobs of this queue.")
@click.option("--all", "everything", is_flag=True, help="Rejected documents too.")
@click.option("-w", "--watch", is_flag=True, help="Go on: show every change.")
@shared_options
@click.pass_obj
def list_jobs(state: State, phases: tuple[str, ...], queue: str, everything: bool, watch: bool) -> None:
    """List jobs, newest first; rejected documents only when asked for."""
    if not phases and not everything:
        phases = tuple(phase.value for phase in Phase if phase is not Phase.REJECTED)
    if watch:
        with state.client() as client:
            client.cluster()
        with state.patient_client() as client:
            _watch(state, client, phases=phases, queue=queue)
        return
    with state.client() as client:
        jobs = list(client.list(phases=phases, queue=queue))
    match state.output:
        case "name":
            for job in jobs:
                click.echo(job.job_id)
        case "table" if not jobs:
            state.note("no jobs")
        case "table":
            print_table(state.out, job_table(jobs, time.time()))
        case _:
            emit_all(jobs, state.output)


def _watch(state: State, client: Client, *, phases: tuple[str, ...], queue: str) -> None:
    if state.output == "table" and state.out.is_terminal:
        _watch_live(state, client, phases=phases, queue=queue)
        return
    for response in client.watch_all():
        job = response.job
        if not _wanted(job, phases, queue):
            continue
        if state.output == "name":
            click.echo(job.job_id)
        elif state.output == "table":
            click.echo(_line(job, deleted=response.deleted))
        else:
            emit_line(response, state.output)


def _watch_live(state: State, client: Client, *, phases: tuple[str, ...], queue: str) -> None:
    from rich.live import Live  # noqa: PLC0415 (only on a terminal)

    jobs: dict[str, job_pb2.Job] = {}
    with Live(console=state.out, auto_refresh=False) as live:
        for response in client.watch_all():
            job = response.job
            jobs.pop(job.job_id, None)
            if not response.deleted and _wanted(job, phases, queue):
                jobs[job.job_id] = job
            newest = sorted(jobs.values(), key=lambda job: -job.status.submitted_at.ToMicroseconds())
            live.update(job_table(newest[: state.out.height - 2], time.time()), refresh=True)


def _wanted(job: job_pb2.Job, phases: tuple[str, ...], queue: str) -> bool:
    phase = phase_from_proto(job.status.phase)
    return (not phases or phase in phases) and (not queue or job.spec.queue == queue)


def _line(job: job_pb2.Job, *, deleted: bool) -> str:
    if deleted:
        return f"{time.strftime('%H:%M:%S')}  {job.name or job.job_id}  deleted"
    reason = job.status.reason.message or job.status.reason.code
    counts = words.running_of_all(job)
    return f"{time.strftime('%H:%M:%S')}  {job.name or job.job_id}  {words.phase_of(job)}  {counts}  {reason}".rstrip()
