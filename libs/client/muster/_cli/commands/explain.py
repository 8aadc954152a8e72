"""``muster explain``: why a job stands where it stands."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.text import Text

from muster._cli.amounts import unsaid
from muster._cli.output import emit
from muster._cli.state import State, shared_options
from muster_rpc.convert import phase_from_proto
from muster_rpc.v1 import job_service_pb2


@click.command()
@click.argument("job")
@shared_options
@click.pass_obj
def explain(state: State, job: str) -> None:
    """Say why a job stands where it stands, and what would change it."""
    with state.client() as client:
        answer = client.explain(job)
    match state.output:
        case "table":
            for line in _sentences(job, answer):
                state.out.print(line, soft_wrap=True)
        case "name":
            click.echo(answer.job_id)
        case _:
            emit(answer, state.output)


def _sentences(job: str, answer: job_service_pb2.ExplainJobResponse) -> Iterator[Text]:
    phase = phase_from_proto(answer.phase)
    reason = answer.reason.message or answer.reason.code
    yield Text.assemble(
        (job, "bold"), f" is {phase.value if phase else answer.phase}", f": {reason}" if reason else ""
    )
    more = unsaid(answer.reason.numbers, reason)
    if more:
        yield Text(f"  {', '.join(more)}", style="dim")
    if answer.position:
        ahead = f", after {', '.join(answer.ahead)}" if answer.ahead else ""
        yield Text(f"It is number {answer.position} in its queue{ahead}.")
    if answer.ruled_out:
        yield Text("Nodes ruled out:")
        width = max(len(name) for name in answer.ruled_out)
        for name, count in sorted(answer.ruled_out.items(), key=lambda item: (-item[1], item[0])):
            yield Text(f"  {name:<{width}}  {count}")
    if answer.remedies:
        yield Text("It would start if:")
        for remedy in answer.remedies:
            yield Text(f"  - {remedy}")
