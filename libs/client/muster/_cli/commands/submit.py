"""``muster submit``: submit a document, and follow its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click

from muster._cli import exit_codes
from muster._cli.arena_flags import FlagsCommand, document_of, words_of
from muster._cli.documents import CLIENT, EITHER, SERVER, InputDocument, dry_run, read_document
from muster._cli.formatting import exit_code, outcome_line, outcome_style
from muster._cli.history import Follower, HistoryPrinter, log_lines
from muster._cli.options import State, shared_options
from muster._cli.output import counted, emit, emit_all, print_problems
from muster.errors import InvalidDocument
from muster_core.models import Phase
from muster_rpc.convert import phase_from_proto, problem_from_proto
from muster_rpc.v1 import job_pb2, job_service_pb2

_EXAMPLES = """\b
Examples:
  muster submit -f job.yaml --follow
  muster submit tfjob --name=mnist --image=tensorflow/tensorflow --workers=2 --ps=1 "python train.py"
  muster submit -f job.yaml --dry-run -o yaml"""


_HERE = frozenset({"", "default"})
"""Namespaces that names are resolved in by default."""


@click.command(cls=FlagsCommand, epilog=_EXAMPLES)
@click.option("-f", "--file", metavar="FILE|-", help="The document, in any format; - is standard input.")
@click.option("--follow", is_flag=True, help="Print events and replica output until the job has ended.")
@click.option("--wait", is_flag=True, help="Wait silently until the job has ended.")
@click.option("--request-id", metavar="ID", help="The same id submits once, however often it is used.")
@click.option(
    "--dry-run",
    "validator",
    is_flag=False,
    flag_value=EITHER,
    type=click.Choice((SERVER, CLIENT, EITHER)),
    help="Show the result instead of submitting: of the server (=server), of this command (=client).  [the server if it is reachable]",
)
@shared_options
@click.pass_obj
@click.pass_context
def submit(
    ctx: click.Context,
    state: State,
    *,
    file: str | None,
    follow: bool,
    wait: bool,
    request_id: str | None,
    validator: str | None,
) -> None:
    """Submit the jobs of a document, or an Arena command line.

    With --follow or --wait exit_codes 0 only if all jobs succeeded. The words of `arena submit` are accepted instead of a
    document: tfjob, pytorchjob, mpijob, horovodjob, etjob and others, their flags, and the command of the replicas.
    """
    given = _given(file, words_of(ctx))
    if validator:
        ctx.exit(exit_codes.REFUSED if dry_run(state, given, validator).refused else exit_codes.OK)
    try:
        submitted = _submit(state, given, request_id)
    except InvalidDocument as refused:
        print_problems(state.err, refused.problems, text=given.text, source_name=given.name)
        state.err.print(f"muster: {given.name} is refused: {counted(refused.problems)}", soft_wrap=True)
        ctx.exit(exit_codes.REFUSED)
    # Problems of the document apply to each of its jobs.
    warnings = list(dict.fromkeys(problem_from_proto(one) for job in submitted for one in job.warnings))
    if warnings:
        print_problems(state.err, warnings, text=given.text, source_name=given.name)
    if not (follow or wait):
        _report(state, submitted)
        return
    if state.output == "table":
        for job in submitted:
            click.echo(_seen(job))
    ids = " ".join(_reference(job) for job in submitted)
    state.interrupt_note = (
        f"{ids} continues; see it with `muster watch {ids}` or `muster logs -f {ids}`, end it with `muster cancel {ids}`"
        if len(submitted) == 1
        else f"the jobs continue; see them with `muster list`, end them with `muster cancel {ids}`"
    )
    ended = asyncio.run(_follow(state, submitted, aloud=follow and state.output == "table"))
    _report_ends(state, given, ended)
    ctx.exit(max((exit_code(job) for job in ended), default=exit_codes.OK))


def _given(file: str | None, words: list[str]) -> InputDocument:
    if words and file:
        raise click.UsageError(
            f"choose a document or a command line: -f {file} and {words[0]} are both given"
        )
    if words:
        if len(words) == 1 and Path(words[0]).is_file():
            raise click.UsageError(f"{words[0]} is a document: write -f {words[0]}")
        text = document_of(words)
        return InputDocument(text.encode(errors="surrogateescape"), text, "the command line")
    if file is None:
        raise click.UsageError('nothing to submit: write -f FILE, or tfjob --name=... "command"')
    return read_document(file)


def _submit(
    state: State, given: InputDocument, request_id: str | None
) -> Sequence[job_service_pb2.SubmittedJob]:
    with state.client() as client:
        return client.submit(given.source, source_name=given.name, request_id=request_id)


def _report(state: State, submitted: Sequence[job_service_pb2.SubmittedJob]) -> None:
    match state.output:
        case "table":
            for job in submitted:
                click.echo(_seen(job))
            which, job = ("it", _reference(submitted[0])) if len(submitted) == 1 else ("each", "NAME")
            state.note(f"see {which} with `muster watch {job}`, its output with `muster logs -f {job}`")
        case "name":
            for job in submitted:
                click.echo(job.job_id)
        case _:
            emit(job_service_pb2.SubmitJobResponse(jobs=submitted), state.output)


def _reference(job: job_service_pb2.SubmittedJob) -> str:
    """Return the reference that works without ``-n``: the name in the default namespace, else the id."""
    return job.name if job.name and job.namespace in _HERE else job.job_id


def _seen(job: job_service_pb2.SubmittedJob) -> str:
    verb = "was already submitted" if job.duplicate else "submitted"
    if not job.validated:
        return f"{job.job_id} {verb}, not validated yet"
    where = "" if job.namespace in _HERE else f" in {job.namespace}"
    return f"{job.name}{where} {verb} as {job.job_id}"


async def _follow(
    state: State, submitted: Sequence[job_service_pb2.SubmittedJob], *, aloud: bool
) -> list[job_pb2.Job]:
    several = len(submitted) > 1
    async with state.async_stream_client() as client:
        client.saw(max(job.revision for job in submitted))
        followers = [
            Follower(
                client,
                job.job_id,
                printer=HistoryPrinter(state.out, label=(job.name or job.job_id) if several else "")
                if aloud
                else None,
                lines=log_lines(state.out, prefixed=True) if aloud else None,
            )
            for job in submitted
        ]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(follower.follow()) for follower in followers]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _report_ends(state: State, given: InputDocument, ended: Sequence[job_pb2.Job]) -> None:
    if state.output == "name":
        return
    if state.output != "table":
        emit_all(ended, state.output)
        return
    for job in ended:
        if phase_from_proto(job.status.phase) is Phase.REJECTED:
            problems = [problem_from_proto(problem) for problem in job.status.problems]
            print_problems(state.err, problems, text=given.text, source_name=given.name)
        HistoryPrinter(state.out).say(outcome_line(job), style=outcome_style(job))
