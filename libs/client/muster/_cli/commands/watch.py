"""``muster watch``: a job at every change."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
from rich.console import Group
from rich.live import Live

from muster._cli.outcome import exit_code, outcome_line, outcome_style
from muster._cli.output import emit_line
from muster._cli.scribe import Scribe
from muster._cli.sheet import live_view
from muster._cli.state import State, shared_options
from muster._cli.story import Story
from muster_rpc.v1 import job_pb2


@click.command()
@click.argument("job")
@shared_options
@click.pass_obj
@click.pass_context
def watch(ctx: click.Context, state: State, job: str) -> None:
    """Show a job at every change until it has ended. Exits 0 if it succeeded, else 1."""
    state.farewell = f"{job} continues; see it with `muster watch {job}`, end it with `muster cancel {job}`"
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
            Scribe(state.out).say(outcome_line(last), style=outcome_style(last))
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
    story, scribe, last = Story(from_start=False), Scribe(state.out), None
    for last in states:
        for line in story.tell(last):
            scribe.tell(line)
    return last


def _live(state: State, states: Iterator[job_pb2.Job]) -> job_pb2.Job | None:
    story, scribe, last = Story(from_start=False), Scribe(state.out), None
    view = _View()
    with Live(view, console=state.out, refresh_per_second=2, transient=True):
        for last in states:
            view.job = last
            for line in story.tell(last):
                scribe.tell(line)
    return last


class _View:
    """The live display below the events; redrawn at every refresh, so that ages advance."""

    def __init__(self) -> None:
        self.job: job_pb2.Job | None = None

    def __rich__(self) -> Group:
        return Group(*live_view(self.job, time.time())) if self.job else Group()
