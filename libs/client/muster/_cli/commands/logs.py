"""``muster logs``: the output of a job's replicas."""

from __future__ import annotations

import click

from muster._cli import words
from muster._cli.output import emit_line
from muster._cli.scribe import log_lines
from muster._cli.state import State, shared_options
from muster._references import replica_label
from muster_rpc.v1 import job_pb2


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Follow until the replicas end.")
@click.option(
    "--replica",
    "replicas",
    multiple=True,
    metavar="NAME",
    help="Only this replica (worker-0) or role (worker); may be repeated.",
)
@click.option(
    "--tail",
    type=click.IntRange(0, 2**31 - 1),
    default=0,
    metavar="N",
    help="Only the last lines of each replica.  [all]",
)
@shared_options
@click.pass_obj
def logs(state: State, job: str, follow: bool, replicas: tuple[str, ...], tail: int) -> None:
    """Print the output of a job's replicas; lines of several replicas start with the replica's name."""
    if follow:
        state.farewell = f"{job} continues; see more with `muster logs -f {job}`"
    with state.client() as client:
        found = client.get(job)
    with state.stream_client() if follow else state.client() as client:
        wanted = tuple(words.short_name(found, name) for name in replicas)
        chunks = client.logs(found.job_id, replicas=wanted, follow=follow, tail=tail)
        if state.output in {"json", "yaml"}:
            for chunk in chunks:
                emit_line(chunk, state.output)
            return
        lines = log_lines(state.out, prefixed=_several(found, wanted))
        for chunk in chunks:
            lines.write(replica_label(chunk.replica), chunk.data)
        lines.end()


def _several(job: job_pb2.Job, wanted: tuple[str, ...]) -> bool:
    if len(wanted) == 1 and wanted[0] not in {role.name for role in job.spec.roles}:
        return False
    roles = [role for role in job.spec.roles if not wanted or role.name in wanted]
    return len(wanted) > 1 or sum(role.max for role in roles) != 1
