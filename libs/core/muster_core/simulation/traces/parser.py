"""Parse traces: tables, whose format is recognised by their columns, and Philly's job log."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from muster_core.models import GPU_MILLI, Problem, Resources, Severity
from muster_core.simulation.traces.formats import FORMATS, OWN_FORMAT, PHILLY_JSON, TABLE_FORMATS, TableFormat
from muster_core.simulation.traces.model import Trace, TraceJob
from muster_core.simulation.traces.table import TableRow, epoch_seconds
from muster_core.simulation.workload import fixed

_US = 1_000_000
_MAX_PROBLEMS = 100


def read_trace(text: str, *, format_name: str = "") -> Trace:
    """Parse a trace. The first arrival is time 0; repeated names get a number.

    Args:
        text: The content of the file.
        format_name: One of ``FORMATS``; by default the columns decide, and ambiguity is an error.
    """
    if format_name == PHILLY_JSON or (not format_name and text.lstrip()[:1] == "["):
        trace = _read_philly_json(text)
    else:
        trace = _read_table(text, format_name)
    return msgspec.structs.replace(trace, jobs=_by_arrival(trace.jobs))


def _read_table(text: str, format_name: str) -> Trace:
    reader = csv.DictReader(io.StringIO(text), restval="")
    columns = [column.strip() for column in reader.fieldnames or ()]
    reader.fieldnames = columns
    table = _recognise(columns, format_name)
    if isinstance(table, Problem):
        return Trace(format=format_name, problems=(table,))
    row = TableRow()
    row.advance(1, {})
    for column in columns:
        if column not in table.known:
            row.warn(column, f"{table.name} has no column {column!r}: it is ignored")
    jobs: list[TraceJob] = []
    try:
        for cells in reader:
            row.advance(reader.line_num, cells)
            job = table.read(row, reader.line_num)
            if job is not None and not row.failed:
                jobs.append(job)
    except csv.Error as error:
        row.advance(reader.line_num, {})
        row.error("", f"the file is not a table: {error}")
    if not jobs and not row.problems:
        row.error("", "the trace has no jobs")
    return Trace(format=table.name, jobs=tuple(jobs), problems=tuple(row.problems))


def _recognise(columns: Sequence[str], format_name: str) -> TableFormat | Problem:
    present = set(columns)
    if format_name:
        table = next((one for one in TABLE_FORMATS if one.name == format_name), None)
        if table is None:
            return _unknown(f"there is no format {format_name}", f"use one of {', '.join(FORMATS)}")
        missing = ", ".join(sorted(table.required - present))
        if missing:
            return _unknown(f"{format_name} needs the columns {missing}", "add them, or use another format")
        return table
    matches = [one for one in TABLE_FORMATS if one.required <= present]
    matches = [one for one in matches if not any(one.required < other.required for other in matches)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = ", ".join(one.name for one in matches)
        return _unknown(f"the columns match several formats: {names}", "choose one with --format")
    nearest = min(TABLE_FORMATS, key=lambda one: (len(one.required - present), one.name != OWN_FORMAT))
    missing = ", ".join(sorted(nearest.required - present))
    return _unknown(
        f"the columns ({', '.join(columns[:20]) or 'none'}) match no known format",
        f"the nearest format is {nearest.name}, which also has {missing}",
    )


def _unknown(message: str, fix: str) -> Problem:
    return Problem(code="UnknownFormat", path="", message=message, line=1, column=1, fix=fix)


class _Detail(msgspec.Struct, frozen=True):
    gpus: tuple[str, ...] = ()


class _Attempt(msgspec.Struct, frozen=True):
    start_time: str | None = None
    end_time: str | None = None
    detail: tuple[_Detail, ...] = ()


class _PhillyJob(msgspec.Struct, frozen=True):
    jobid: str
    submitted_time: str
    attempts: tuple[_Attempt, ...] = ()
    vc: str = ""
    user: str = ""


def _read_philly_json(text: str) -> Trace:
    """Parse Philly's ``cluster_job_log`` (ATC'19): a JSON list of jobs with their scheduled attempts."""
    try:
        log = msgspec.json.decode(text, type=tuple[_PhillyJob, ...])
    except msgspec.MsgspecError as error:
        problem = Problem(code="Invalid", path="$", message=f"the file is not a Philly job log: {error}")
        return Trace(format=PHILLY_JSON, problems=(problem,))
    jobs: list[TraceJob] = []
    problems: list[Problem] = []
    for position, entry in enumerate(log):
        job = _philly_job(entry)
        if job is not None:
            jobs.append(job)
        elif len(problems) < _MAX_PROBLEMS:
            message = f"{entry.jobid} has no attempt with a start, an end and GPUs; it is omitted"
            problems.append(
                Problem(code="Note", path=f"$[{position}]", message=message, severity=Severity.WARNING)
            )
    return Trace(format=PHILLY_JSON, jobs=tuple(jobs), problems=tuple(problems))


def _philly_job(entry: _PhillyJob) -> TraceJob | None:
    """Return a job as long as its attempts together, on as many GPUs as the largest attempt; None if it never ran."""
    submitted = epoch_seconds(entry.submitted_time)
    seconds = 0.0
    gpus = 0
    for attempt in entry.attempts:
        start, end = epoch_seconds(attempt.start_time or ""), epoch_seconds(attempt.end_time or "")
        if start is None or end is None or end < start:
            continue
        seconds += end - start
        gpus = max(gpus, sum(len(detail.gpus) for detail in attempt.detail))
    if submitted is None or not gpus:
        return None
    return TraceJob(
        name=entry.jobid,
        submit_us=round(submitted * _US),
        work=fixed(seconds),
        replicas=gpus,
        min=gpus,
        max=gpus,
        worker=Resources(gpu=GPU_MILLI),
        queue=entry.vc,
        user=entry.user,
    )


def _by_arrival(jobs: Iterable[TraceJob]) -> tuple[TraceJob, ...]:
    ordered = sorted(jobs, key=lambda job: job.submit_us)
    first = ordered[0].submit_us if ordered else 0
    used = Counter[str]()
    return tuple(
        msgspec.structs.replace(job, submit_us=job.submit_us - first, name=_unique(job.name, used))
        for job in ordered
    )


def _unique(name: str, used: Counter[str]) -> str:
    times = used[name]
    used[name] += 1
    return _unique(f"{name}-{times + 1}", used) if times else name
