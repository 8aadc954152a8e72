"""``muster cancel``, ``delete``, ``suspend``, ``resume``, ``restart`` and ``scale``."""

from __future__ import annotations

from collections.abc import Sequence

import click

from muster._cli.options import State, shared_options
from muster._cli.output import emit, emit_all
from muster_rpc.v1 import job_service_pb2

_MOST_DIGITS = 9
_Answer = (
    job_service_pb2.CancelJobResponse
    | job_service_pb2.DeleteJobResponse
    | job_service_pb2.SuspendJobResponse
    | job_service_pb2.ResumeJobResponse
    | job_service_pb2.RestartJobResponse
)


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@click.option("-m", "--message", default="", metavar="TEXT", help="A message for the jobs' history.")
@shared_options
@click.pass_obj
def cancel(state: State, jobs: tuple[str, ...], message: str) -> None:
    """End jobs; their records and logs stay."""
    with state.client() as client:
        answers = [client.cancel(job, message=message) for job in jobs]
    _confirm(state, jobs, answers, "is being cancelled")


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@shared_options
@click.pass_obj
def delete(state: State, jobs: tuple[str, ...]) -> None:
    """End jobs and remove their records and logs."""
    with state.client() as client:
        answers = [client.delete(job) for job in jobs]
    _confirm(state, jobs, answers, "is being deleted")


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@shared_options
@click.pass_obj
def suspend(state: State, jobs: tuple[str, ...]) -> None:
    """Stop jobs and hold them until they are resumed; they keep their queue position.

    Replicas get SIGTERM and their grace period, for a checkpoint. Waiting jobs are held as well.
    """
    with state.client() as client:
        answers = [client.suspend(job) for job in jobs]
    _confirm(state, jobs, answers, "is being suspended")


@click.command()
@click.argument("jobs", nargs=-1, required=True)
@shared_options
@click.pass_obj
def resume(state: State, jobs: tuple[str, ...]) -> None:
    """Resume suspended jobs: they wait in their queue and start when they fit."""
    with state.client() as client:
        answers = [client.resume(job) for job in jobs]
    _confirm(state, jobs, answers, "is resumed and starts when it fits")


@click.command()
@click.argument("job")
@click.option("--replica", default="", metavar="ROLE-INDEX", help="Restart only this replica, e.g. worker-3.")
@shared_options
@click.pass_obj
def restart(state: State, job: str, replica: str) -> None:
    """Restart a job; this counts as no failure and has no back-off.

    Replicas get SIGTERM and their grace period, for a checkpoint. The gang is placed anew; a single replica stays where
    it is.
    """
    with state.client() as client:
        answer = client.restart(job, replica=replica)
    _confirm(state, (job,), (answer,), f"restarts {replica}" if replica else "is being restarted")


@click.command()
@click.argument("job")
@click.argument("size", metavar="ROLE=N")
@shared_options
@click.pass_obj
def scale(state: State, job: str, size: str) -> None:
    """Resize a role within its bounds: muster scale demo worker=4."""
    role, separator, count = size.partition("=")
    if not separator or not role or not count.isdecimal() or len(count) > _MOST_DIGITS:
        raise click.BadParameter(f"{size!r} is not ROLE=N, e.g. worker=4", param_hint="ROLE=N")
    with state.client() as client:
        answer = client.scale(job, int(count), role=role)
    match state.output:
        case "table":
            known_by = answer.job_id if state.namespace else job
            click.echo(f"{job} is being resized to {count} {role}; see `muster watch {known_by}`")
        case "name":
            click.echo(answer.job_id)
        case _:
            emit(answer, state.output)


def _confirm(state: State, jobs: tuple[str, ...], answers: Sequence[_Answer], what: str) -> None:
    if state.output in {"json", "yaml"}:
        emit_all(answers, state.output)
        return
    for job, answer in zip(jobs, answers, strict=True):
        click.echo(answer.job_id if state.output == "name" else f"{job} {what}")
