"""``muster list``, ``get``, ``watch`` and ``explain``."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import msgspec
from rich.console import Group
from rich.live import Live

from muster._cli import formatting
from muster._cli.explanation import print_explanation
from muster._cli.formatting import exit_code, outcome_line, outcome_style
from muster._cli.history import HistoryPrinter, JobHistory
from muster._cli.job_details import live_view, print_sheet, show_all
from muster._cli.options import State, shared_options
from muster._cli.output import emit, emit_line, print_table
from muster._cli.tables import SORTS, in_order, job_table
from muster._sync_client import Client
from muster.errors import MusterError
from muster_core.models import Phase
from muster_rpc.convert import phase_from_proto
from muster_rpc.v1 import explanation_pb2, job_pb2, job_service_pb2


@click.command("list")
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=click.Choice([phase.value for phase in Phase], case_sensitive=False),
    help="Only jobs in this phase; may be repeated.",
)
@click.option("--queue", default="", metavar="NAME", help="Only jobs of this queue.")
@click.option("-A", "--all-namespaces", is_flag=True, help="Jobs of all namespaces.")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="age",
    show_default=True,
    help="The order; age: newest first, priority: highest first.",
)
@click.option("--all", "everything", is_flag=True, help="Include rejected documents.")
@click.option("-w", "--watch", is_flag=True, help="Show every change.")
@shared_options
@click.pass_obj
def list_jobs(  # noqa: PLR0917 (click passes options by name)
    state: State,
    phases: tuple[str, ...],
    queue: str,
    all_namespaces: bool,
    sort: str,
    everything: bool,
    watch: bool,
) -> None:
    """List jobs, newest first; rejected documents only with --all."""
    namespace = "-" if all_namespaces else None
    if not phases and not everything:
        phases = tuple(phase.value for phase in Phase if phase is not Phase.REJECTED)
    if watch:
        with state.client() as client:
            client.cluster()
        with state.stream_client() as client:
            _watch(state, client.watch_all(namespace=namespace), _Wanted(phases, queue, sort))
        return
    with state.client() as client:
        jobs = in_order(client.list(namespace=namespace, phases=phases, queue=queue), sort)
    show_all(
        state,
        jobs,
        name_of=lambda one: one.job_id,
        otherwise="no jobs",
        tables=lambda found: print_table(state.out, job_table(found, time.time())),
    )


class _Wanted(msgspec.Struct, frozen=True):
    """The filter and order of a list."""

    phases: tuple[str, ...]
    queue: str
    sort: str

    def has(self, job: job_pb2.Job) -> bool:
        """Return whether a job passes the filter."""
        phase = phase_from_proto(job.status.phase)
        return (not self.phases or phase in self.phases) and (
            not self.queue or job.status.queue == self.queue
        )


def _watch(state: State, changes: Iterator[job_service_pb2.WatchJobsResponse], wanted: _Wanted) -> None:
    if state.output == "table" and state.out.is_terminal:
        _watch_live(state, changes, wanted)
        return
    shown: dict[str, str] = {}
    for response in changes:
        job = response.job
        if response.type == job_service_pb2.WATCH_EVENT_TYPE_SYNCED:
            continue
        # Only the id of a deleted job is known.
        if not (job.job_id in shown if _is_deleted(response) else wanted.has(job)):
            continue
        name = shown[job.job_id] = job.name or shown.get(job.job_id, job.job_id)
        if state.output == "name":
            click.echo(job.job_id)
        elif state.output == "table":
            click.echo(_line(job, name, deleted=_is_deleted(response)))
        else:
            emit_line(response, state.output)


def _watch_live(state: State, changes: Iterator[job_service_pb2.WatchJobsResponse], wanted: _Wanted) -> None:
    from rich.live import Live  # noqa: PLC0415 (only on a terminal)

    jobs: dict[str, job_pb2.Job] = {}
    with Live(console=state.out, auto_refresh=False) as live:
        for response in changes:
            job = response.job
            if response.type == job_service_pb2.WATCH_EVENT_TYPE_SYNCED:
                continue
            jobs.pop(job.job_id, None)
            if not _is_deleted(response) and wanted.has(job):
                jobs[job.job_id] = job
            first = in_order(jobs.values(), wanted.sort)[: state.out.height - 2]
            live.update(job_table(first, time.time()), refresh=True)


def _line(job: job_pb2.Job, name: str, *, deleted: bool) -> str:
    if deleted:
        return f"{time.strftime('%H:%M:%S')}  {name}  deleted"
    reason = job.status.reason.message or job.status.reason.code
    counts = formatting.running_of_all(job)
    return f"{time.strftime('%H:%M:%S')}  {name}  {formatting.phase_of(job)}  {counts}  {reason}".rstrip()


def _is_deleted(response: job_service_pb2.WatchJobsResponse) -> bool:
    return response.type == job_service_pb2.WATCH_EVENT_TYPE_DELETED


@click.command()
@click.argument("job")
@shared_options
@click.pass_obj
def get(state: State, job: str) -> None:
    """Show one job, by id or by name (the newest of that name)."""
    with state.client() as client:
        found = client.get(job)
        explanation = _place(client, found) if state.output == "table" else None
    match state.output:
        case "table":
            print_sheet(state.out, found, time.time(), explanation)
        case "name":
            click.echo(found.job_id)
        case _:
            emit(found, state.output)


def _place(client: Client, job: job_pb2.Job) -> explanation_pb2.Explanation | None:
    """Return the queue position of a waiting job. The page does not need it, so an unavailable scheduler is not waited for."""
    if not formatting.is_waiting(job):
        return None
    try:
        return client.explain(job.job_id)
    except MusterError:
        return None


@click.command()
@click.argument("job")
@shared_options
@click.pass_obj
@click.pass_context
def watch(ctx: click.Context, state: State, job: str) -> None:
    """Show a job at every change until it has ended. Exits 0 if it succeeded, else 1."""
    state.interrupt_note = (
        f"{job} continues; see it with `muster watch {job}`, end it with `muster cancel {job}`"
    )
    with state.client() as client:
        found = client.get(job)
    with state.stream_client() as client:
        states = client.watch(found.job_id)
        if state.for_programs:
            last = _for_programs(state, states)
        elif state.out.is_terminal:
            last = _live(state, states)
        else:
            last = _lines(state, states)
    if last is not None:
        if not state.for_programs:
            HistoryPrinter(state.out).say(outcome_line(last), style=outcome_style(last))
        ctx.exit(exit_code(last))


def _for_programs(state: State, states: Iterator[job_pb2.Job]) -> job_pb2.Job | None:
    last = None
    for last in states:
        if state.output == "name":
            click.echo(last.job_id)
        else:
            emit_line(last, state.output)
    return last


def _lines(state: State, states: Iterator[job_pb2.Job]) -> job_pb2.Job | None:
    history, printer, last = JobHistory(from_start=False), HistoryPrinter(state.out), None
    for last in states:
        for line in history.new_lines(last):
            printer.tell(line)
    return last


def _live(state: State, states: Iterator[job_pb2.Job]) -> job_pb2.Job | None:
    history, printer, last = JobHistory(from_start=False), HistoryPrinter(state.out), None
    view = _View()
    with Live(view, console=state.out, refresh_per_second=2, transient=True):
        for last in states:
            view.job = last
            for line in history.new_lines(last):
                printer.tell(line)
    return last


class _View:
    """The live display below the events; redrawn at every refresh, so that ages advance."""

    def __init__(self) -> None:
        self.job: job_pb2.Job | None = None

    def __rich__(self) -> Group:
        return Group(*live_view(self.job, time.time())) if self.job else Group()


@click.command()
@click.argument("job")
@shared_options
@click.pass_obj
def explain(state: State, job: str) -> None:
    """Explain why a job waits, and what would let it start.

    Shows the reason, nodes excluded by filters, missing resources, queue position, reservations and the expected start.
    Remedies that "would start now" were verified on the current pool.
    """
    with state.client() as client:
        explanation = client.explain(job)
    match state.output:
        case "table":
            print_explanation(state.out, explanation, time.time())
        case "name":
            click.echo(explanation.job_id)
        case _:
            emit(explanation, state.output)
