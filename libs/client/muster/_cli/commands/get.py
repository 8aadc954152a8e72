"""``muster get``: one job on one page."""

from __future__ import annotations

import time

import click

from muster._cli.output import emit
from muster._cli.sheet import print_sheet
from muster._cli.state import State, shared_options


@click.command()
@click.argument("job")
@shared_options
@click.pass_obj
def get(state: State, job: str) -> None:
    """Show one job, by id or by name (the newest of that name)."""
    with state.client() as client:
        found = client.get(job)
    match state.output:
        case "table":
            print_sheet(state.out, found, time.time())
        case "name":
            click.echo(found.job_id)
        case _:
            emit(found, state.output)
