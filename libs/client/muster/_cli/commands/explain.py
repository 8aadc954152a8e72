"""``muster explain``: why a job stands where it stands."""

from __future__ import annotations

import time

import click

from muster._cli.explanation import print_explanation
from muster._cli.output import emit
from muster._cli.state import State, shared_options


@click.command()
@click.argument("job")
@shared_options
@click.pass_obj
def explain(state: State, job: str) -> None:
    """Say why a job stands where it stands, and what would change it.

    First the reason, then what rules nodes out and what is short, its place in the queue, the room that is kept, and the expected start;
    in the end what helps: what "would start now" has been tried on the pool as it is.
    """
    with state.client() as client:
        said = client.explain(job)
    match state.output:
        case "table":
            print_explanation(state.out, said, time.time())
        case "name":
            click.echo(said.job_id)
        case _:
            emit(said, state.output)
