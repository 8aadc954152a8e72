"""All details of one job: ``muster get`` and ``muster watch``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import click
from google.protobuf.message import Message
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from muster._cli import formatting
from muster._cli.explanation import standing
from muster._cli.options import State
from muster._cli.output import emit_all, print_table, table
from muster_rpc.convert import event_name
from muster_rpc.v1 import explanation_pb2, job_pb2

_STATE_STYLES = {
    job_pb2.REPLICA_STATE_RUNNING: "green",
    job_pb2.REPLICA_STATE_REJECTED: "red",
    job_pb2.REPLICA_STATE_LOST: "red",
    job_pb2.REPLICA_STATE_PLACED: "yellow",
    job_pb2.REPLICA_STATE_LAUNCHED: "yellow",
}

_DAY_S = 86_400

_IDENTIFIED = 2
"""Sizes that must be measured to know how a job scales."""


def print_sheet(
    console: Console, job: job_pb2.Job, now: float, explanation: explanation_pb2.Explanation | None = None
) -> None:
    """Print the page; ``explanation`` is the explanation of a waiting job, or None."""
    header = list(_header(job, now, explanation))
    width = max(len(label) for label, _ in header) + 2
    for label, value in header:
        console.print(Text.assemble((f"{label + ':':<{width}}", "bold"), value), soft_wrap=True)
    if job.status.replicas:
        console.print()
        print_table(console, replica_table(job, now))
    if job.status.conditions:
        console.print()
        print_table(console, _conditions(job, now))
    if job.status.history:
        console.print()
        print_table(console, _history(job, now))


def replica_table(job: job_pb2.Job, now: float) -> Table:
    """Print the job's replicas, terminating ones included.

    Attempt and generation are shown if they differ from the first.
    """
    later_attempt = any(replica.attempt > 1 for replica in job.status.replicas)
    later_generation = any(replica.generation > 1 for replica in job.status.replicas)
    rows = [
        (
            formatting.short_name(job, replica.name),
            Text(formatting.state_of(replica), style=_state_style(replica)),
            replica.node,
            formatting.gpu_list(replica.gpus),
            replica.address,
            str(replica.attempt) if later_attempt else "",
            str(replica.generation) if later_generation else "",
            str(replica.restart) if replica.restart else "",
            formatting.since(
                replica.running_at if replica.HasField("running_at") else replica.placed_at, now
            ),
            formatting.ending_of(replica),
        )
        for replica in job.status.replicas
    ]
    headers = (
        "REPLICA",
        "STATE",
        "NODE",
        "GPUS",
        "ADDRESS",
        "ATTEMPT",
        "GENERATION",
        "RESTARTS",
        "AGE",
        "END",
    )
    return table(headers, rows)


def status_line(job: job_pb2.Job) -> Text:
    """Return phase, running replicas and reason on one line."""
    return Text.assemble(
        (job.name or job.job_id, "bold"),
        "  ",
        (formatting.phase_of(job), formatting.phase_style(job)),
        f"  {formatting.running_of_all(job)}  ",
        _reason(job.status.reason),
    )


def live_view(job: job_pb2.Job, now: float) -> Iterator[RenderableType]:
    """Return the live display of the job: its line and its replicas."""
    yield status_line(job)
    if job.status.replicas:
        yield replica_table(job, now)


def _header(
    job: job_pb2.Job, now: float, explanation: explanation_pb2.Explanation | None
) -> Iterator[tuple[str, str | Text]]:
    status = job.status
    yield "Name", job.name or "(not known yet)"
    yield "Id", job.job_id
    if job.namespace:
        yield "Namespace", job.namespace
    yield "Phase", Text(formatting.phase_of(job), style=formatting.phase_style(job))
    if _reason(status.reason):
        yield "Reason", _reason(status.reason)
    if status.address:
        yield "Address", status.address
    if job.built_by:
        yield "Built by", f"{job.spec.built_by} ({job.built_by})"
    if job.HasField("spec"):
        yield "Framework", _framework(job.spec)
        if explanation is None:
            yield "Queue", job.status.queue
        else:
            yield from standing(explanation, now)
        yield "Replicas", ", ".join(_role(job, role) for role in job.spec.roles)
        if job.spec.HasField("defaults"):
            yield "Defaults", _defaults(job.spec.defaults)
    if status.attempt:
        yield "Attempt", _attempt(status)
    if status.HasField("progress"):
        yield "Progress", _progress(status.progress, now)
    if status.HasField("speed_up"):
        yield "Speed-up", _speed_up(status.speed_up)
    yield "Age", _ages(job, now)
    if job.trace_id:
        yield "Trace", job.trace_id
    for warning in job.spec.warnings:
        yield "Warning", f"{warning.path}: {warning.message}" if warning.path else warning.message
    for problem in status.problems:
        yield "Problem", f"{problem.path}: {problem.message}" if problem.path else problem.message


def _framework(spec: job_pb2.JobSpec) -> str:
    name = job_pb2.Framework.Name(spec.framework).removeprefix("FRAMEWORK_").lower()
    return f"{name} ({spec.format})" if spec.format not in {"", "native", name} else name


def _defaults(applied: job_pb2.AppliedDefaults) -> str:
    category = job_pb2.Category.Name(applied.category).removeprefix("CATEGORY_").lower()
    filled = ", ".join(applied.fields) or "no defaults apply"
    return f"{filled} (version {applied.revision} for {category})"


def _role(job: job_pb2.Job, role: job_pb2.Role) -> str:
    has = sum(1 for replica in formatting.members(job) if replica.role == role.name)
    notes = [f"{role.min} to {role.max}"] if role.min != role.max else []
    if has and has != role.replicas and not formatting.has_ended(job):
        notes.append(f"has {has}")
    return f"{role.replicas} {role.name}" + (f" ({', '.join(notes)})" if notes else "")


def _attempt(status: job_pb2.JobStatus) -> str:
    parts = [f"{status.attempt}, generation {status.generation}"]
    if status.failures:
        parts.append(_counted(status.failures, "failure"))
    if status.evictions:
        parts.append(_counted(status.evictions, "eviction"))
    return ", ".join(parts)


def _progress(progress: job_pb2.Progress, now: float) -> str:
    parts = [
        f"step {progress.step}",
        *(f"{name} {value}" for name, value in sorted(progress.metrics.items())),
    ]
    text = f"{', '.join(parts)}, {formatting.age(now - formatting.instant(progress.at))} ago"
    rates = ", ".join(
        f"{one.steps_per_second:.3g}/s with {_counted(one.workers, 'worker')}" for one in progress.throughput
    )
    return f"{text}; {rates}" if rates else text


def _speed_up(speed_up: job_pb2.SpeedUp) -> str:
    known = "assumed" if speed_up.measured_sizes < _IDENTIFIED else "measured"
    return (
        f"{speed_up.factor:.2f} with {_counted(speed_up.workers, 'worker')}, one more would add {speed_up.gain:.2f}"
        f" (serial fraction {speed_up.serial_fraction:.3f}, {known})"
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _ages(job: job_pb2.Job, now: float) -> str:
    status = job.status
    submitted, running = formatting.instant(status.submitted_at), formatting.instant(status.running_at)
    finished = formatting.instant(status.finished_at)
    parts = [f"submitted {formatting.age(now - submitted)} ago"] if submitted else []
    if running and finished:
        parts.append(f"ran {formatting.duration(finished - running)}")
    elif status.phase == job_pb2.PHASE_RUNNING:
        parts.append(f"running for {formatting.age(now - running)}")
    elif formatting.is_waiting(job):
        parts.append(f"waits for {formatting.age(now - _waits_since(status))}")
    if finished:
        parts.append(f"ended {formatting.age(now - finished)} ago")
    return ", ".join(parts)


def _waits_since(status: job_pb2.JobStatus) -> float:
    """Return since when a job has waited, which may have been placed before."""
    lost = (one.last_transition_at for one in status.conditions if one.type == "Placed")
    return formatting.instant(next(lost, status.queued_at))


def _reason(reason: job_pb2.Reason) -> str:
    if reason.code and reason.message:
        return f"{reason.message} ({reason.code})"
    return reason.message or reason.code


def _conditions(job: job_pb2.Job, now: float) -> Table:
    rows = [
        (one.type, _status(one), formatting.since(one.last_transition_at, now), one.reason)
        for one in job.status.conditions
    ]
    return table(("CONDITION", "STATUS", "FOR", "REASON"), rows)


def _status(condition: job_pb2.Condition) -> str:
    return job_pb2.ConditionStatus.Name(condition.status).removeprefix("CONDITION_STATUS_").capitalize()


def _history(job: job_pb2.Job, now: float) -> Table:
    first = formatting.instant(job.status.history[0].at)
    clock = formatting.clock if now - first < _DAY_S else formatting.dated_clock
    rows = [
        (
            clock(entry.at),
            f"+{formatting.duration(formatting.instant(entry.at) - first)}",
            entry.source,
            event_name(entry.event),
            _what(entry),
        )
        for entry in job.status.history
    ]
    return table(("TIME", "AFTER", "SOURCE", "EVENT", "WHAT"), rows, wrapped=True)


def _what(entry: job_pb2.HistoryEntry) -> str:
    if entry.event == job_pb2.JOB_EVENT_TYPE_COMMAND_REQUESTED:
        return f"{entry.reason} {entry.message}".strip()
    return entry.message or entry.reason


def _state_style(replica: job_pb2.Replica) -> str:
    if replica.state == job_pb2.REPLICA_STATE_EXITED:
        return "" if replica.exit_code == 0 and not replica.HasField("signal") else "red"
    return _STATE_STYLES.get(replica.state, "")


M = TypeVar("M", bound=Message)


def show_all(
    state: State,
    found: Sequence[M],
    *,
    name_of: Callable[[M], str],
    otherwise: str,
    tables: Callable[[Sequence[M]], None],
) -> None:
    """Print ``found`` by ``tables``, or the text ``otherwise`` if it is empty."""
    match state.output:
        case "name":
            for one in found:
                click.echo(name_of(one))
        case "table" if not found:
            state.note(otherwise)
        case "table":
            tables(found)
        case _:
            emit_all(found, state.output)
