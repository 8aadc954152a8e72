"""One job on one page: who it is, where it stands and why, its replicas, its story."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster._cli import words
from muster._cli.tables import print_table, table
from muster_rpc.v1 import job_pb2

_STATE_STYLES = {
    job_pb2.REPLICA_STATE_RUNNING: "green",
    job_pb2.REPLICA_STATE_REJECTED: "red",
    job_pb2.REPLICA_STATE_LOST: "red",
    job_pb2.REPLICA_STATE_PLACED: "yellow",
    job_pb2.REPLICA_STATE_LAUNCHED: "yellow",
}


def print_sheet(console: Console, job: job_pb2.Job, now: float) -> None:
    """Print the page."""
    for label, value in _header(job, now):
        console.print(Text.assemble((f"{label + ':':<11}", "bold"), value), soft_wrap=True)
    if job.status.replicas:
        console.print()
        print_table(console, replica_table(job, now))
    if job.status.history:
        console.print()
        print_table(console, _history(job))


def replica_table(job: job_pb2.Job, now: float) -> Table:
    """The replicas of the job, those that are leaving included."""
    rows = [
        (
            words.short_name(job, replica.name),
            Text(words.state_of(replica), style=_state_style(replica)),
            replica.node,
            words.gpu_list(replica.gpus),
            replica.address,
            str(replica.restart) if replica.restart else "",
            words.since(replica.running_at if replica.HasField("running_at") else replica.placed_at, now),
            words.ending_of(replica),
        )
        for replica in job.status.replicas
    ]
    return table(("REPLICA", "STATE", "NODE", "GPUS", "ADDRESS", "RESTARTS", "AGE", "END"), rows)


def status_line(job: job_pb2.Job) -> Text:
    """Phase, replicas that run, reason: the job in one line."""
    return Text.assemble(
        (job.name or job.job_id, "bold"),
        "  ",
        (words.phase_of(job), words.phase_style(job)),
        f"  {words.running_of_all(job)}  ",
        _reason(job.status.reason),
    )


def live_view(job: job_pb2.Job, now: float) -> Iterator[RenderableType]:
    """What a live display of the job shows: its line and its replicas."""
    yield status_line(job)
    if job.status.replicas:
        yield replica_table(job, now)


def _header(job: job_pb2.Job, now: float) -> Iterator[tuple[str, str | Text]]:
    status = job.status
    yield "Name", job.name or "(not known yet)"
    yield "Id", job.job_id
    if job.namespace:
        yield "Namespace", job.namespace
    yield "Phase", Text(words.phase_of(job), style=words.phase_style(job))
    if _reason(status.reason):
        yield "Reason", _reason(status.reason)
    if status.address:
        yield "Address", status.address
    if job.built_by:
        yield "Built by", f"{job.spec.built_by} ({job.built_by})"
    if job.HasField("spec"):
        yield "Framework", _framework(job.spec)
        yield "Queue", job.spec.queue or "(none)"
        yield "Replicas", ", ".join(_role(role) for role in job.spec.roles)
        if job.spec.HasField("defaults"):
            yield "Defaults", _defaults(job.spec.defaults)
    if status.attempt:
        yield "Attempt", _attempt(status)
    yield "Age", _ages(status, now)
    if job.trace_id:
        yield "Trace", job.trace_id
    for warning in job.spec.warnings:
        yield "Warning", f"{warning.path}: {warning.message}" if warning.path else warning.message
    for problem in status.problems:
        yield "Problem", f"{problem.path}: {problem.message}" if problem.path else problem.message


def _framework(spec: job_pb2.JobSpec) -> str:
    name = job_pb2.Framework.Name(spec.framework).removeprefix("FRAMEWORK_").lower()
    return f"{name} ({spec.dialect})" if spec.dialect not in {"", "native", name} else name


def _defaults(applied: job_pb2.AppliedDefaults) -> str:
    category = job_pb2.Category.Name(applied.category).removeprefix("CATEGORY_").lower()
    filled = ", ".join(applied.fields) or "nothing to fill in"
    return f"{filled} (version {applied.version} for {category})"


def _role(role: job_pb2.Role) -> str:
    bounds = f" ({role.min} to {role.max})" if role.min != role.max else ""
    return f"{role.replicas} {role.name}{bounds}"


def _attempt(status: job_pb2.JobStatus) -> str:
    parts = [f"{status.attempt}, generation {status.generation}"]
    if status.failures:
        parts.append(_counted(status.failures, "failure"))
    if status.evictions:
        parts.append(_counted(status.evictions, "eviction"))
    return ", ".join(parts)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _ages(status: job_pb2.JobStatus, now: float) -> str:
    submitted, running = words.instant(status.submitted_at), words.instant(status.running_at)
    finished = words.instant(status.finished_at)
    parts = [f"submitted {words.age(now - submitted)} ago"] if submitted else []
    if running:
        parts.append(
            f"ran {words.duration(finished - running)}"
            if finished
            else f"running for {words.age(now - running)}"
        )
    if finished:
        parts.append(f"ended {words.age(now - finished)} ago")
    return ", ".join(parts)


def _reason(reason: job_pb2.Reason) -> str:
    if reason.code and reason.message:
        return f"{reason.message} ({reason.code})"
    return reason.message or reason.code


def _history(job: job_pb2.Job) -> Table:
    first = words.instant(job.status.history[0].at)
    rows = [
        (
            words.clock(entry.at),
            f"+{words.duration(words.instant(entry.at) - first)}",
            entry.source,
            entry.fact,
            entry.message or entry.reason,
        )
        for entry in job.status.history
    ]
    return table(("TIME", "AFTER", "SOURCE", "FACT", "WHAT"), rows)


def _state_style(replica: job_pb2.Replica) -> str:
    if replica.state == job_pb2.REPLICA_STATE_EXITED:
        return "" if replica.exit_code == 0 and not replica.HasField("signal") else "red"
    return _STATE_STYLES.get(replica.state, "")
