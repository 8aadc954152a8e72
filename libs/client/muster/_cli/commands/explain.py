"""``muster explain``: why a job waits."""

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
    """Explain why a job waits, and what would let it start.

    Shows the reason, nodes excluded by filters, missing resources, queue position, reservations and the expected start.
    Remedies that "would start now" were verified on the current pool.
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
