"""``muster validate``: all that is wrong with a document, and nothing submitted."""

from __future__ import annotations

import click

from muster._cli import exits
from muster._cli.documents import read_document
from muster._cli.output import emit
from muster._cli.problems import counted, print_problems
from muster._cli.state import State, shared_options
from muster.errors import InvalidDocument
from muster_core.models import Severity
from muster_rpc.convert import problem_from_proto, problem_to_proto
from muster_rpc.v1 import job_service_pb2


@click.command()
@click.option("-f", "--file", required=True, metavar="FILE|-", help="The document; - is standard input.")
@shared_options
@click.pass_obj
@click.pass_context
def validate(ctx: click.Context, state: State, file: str) -> None:
    """Say all that is wrong with a document. Exits 3 when it would be refused."""
    given = read_document(file)
    try:
        with state.client() as client:
            answer = client.validate(given.source, source_name=given.name)
    except InvalidDocument as refused:
        answer = job_service_pb2.ValidateJobResponse(problems=[problem_to_proto(p) for p in refused.problems])
    problems = [problem_from_proto(problem) for problem in answer.problems]
    match state.output:
        case "table":
            if problems:
                print_problems(state.err, problems, text=given.text, source_name=given.name)
            names = ", ".join(job.name for job in answer.jobs)
            click.echo(f"{given.name}: {counted(problems)}" + (f"; means {names}" if names else ""))
        case "name":
            for job in answer.jobs:
                click.echo(job.name)
        case _:
            emit(answer, state.output)
    if any(problem.severity is Severity.ERROR for problem in problems):
        ctx.exit(exits.REFUSED)
