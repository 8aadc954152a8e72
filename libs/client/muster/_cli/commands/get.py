"""``muster get``: one job on one page."""

from __future__ import annotations

import time

import click

from muster._cli import words
from muster._cli.output import emit
from muster._cli.sheet import print_sheet
from muster._cli.state import State, shared_options
from muster._sync_client import Client
from muster.errors import MusterError
from muster_rpc.v1 import explanation_pb2, job_pb2


@click.command()
@click.argument("job")
@shared_options
@click.pass_obj
def get(state: State, job: str) -> None:
    """Show one job, by id or by name (the newest of that name)."""
    with state.client() as client:
        found = client.get(job)
        said = _place(client, found) if state.output == "table" else None
    match state.output:
        case "table":
            print_sheet(state.out, found, time.time(), said)
        case "name":
            click.echo(found.job_id)
        case _:
            emit(found, state.output)


def _place(client: Client, job: job_pb2.Job) -> explanation_pb2.Explanation | None:
    """Return the queue position of a waiting job. The page does not need it, so an unavailable scheduler is not waited for."""
    if not words.is_waiting(job):
        return None
    try:
        return client.explain(job.job_id)
    except MusterError:
        return None
