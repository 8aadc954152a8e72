"""Philly's job log (ATC'19), ``cluster_job_log``: a JSON list of jobs with their scheduled attempts."""

from __future__ import annotations

import msgspec

from muster_core.models import GPU_MILLI, Problem, Resources, Severity
from muster_core.simulation.traces.cells import moment
from muster_core.simulation.traces.model import Trace, TraceJob
from muster_core.simulation.traces.names import PHILLY_JSON
from muster_core.simulation.work import fixed

_US = 1_000_000
_NAMED = 100


class _Place(msgspec.Struct, frozen=True):
    gpus: tuple[str, ...] = ()


class _Attempt(msgspec.Struct, frozen=True):
    start_time: str | None = None
    end_time: str | None = None
    detail: tuple[_Place, ...] = ()


class _Job(msgspec.Struct, frozen=True):
    jobid: str
    submitted_time: str
    attempts: tuple[_Attempt, ...] = ()
    vc: str = ""
    user: str = ""


def read(text: str) -> Trace:
    """Read jobs that ran: as long as their attempts together, on as many GPUs as the largest attempt."""
    try:
        found = msgspec.json.decode(text, type=tuple[_Job, ...])
    except msgspec.MsgspecError as error:
        problem = Problem(code="Invalid", path="$", message=f"this is not a Philly job log: {error}")
        return Trace(format=PHILLY_JSON, problems=(problem,))
    jobs: list[TraceJob] = []
    problems: list[Problem] = []
    for position, one in enumerate(found):
        job = _read_one(one)
        if job is not None:
            jobs.append(job)
        elif len(problems) < _NAMED:
            problems.append(
                Problem(
                    code="Note",
                    path=f"$[{position}]",
                    message=f"{one.jobid} has no attempt with a start, an end and GPUs; it is left out",
                    severity=Severity.WARNING,
                )
            )
    return Trace(format=PHILLY_JSON, jobs=tuple(jobs), problems=tuple(problems))


def _read_one(one: _Job) -> TraceJob | None:
    submitted = moment(one.submitted_time)
    seconds = 0.0
    gpus = 0
    for attempt in one.attempts:
        start, end = moment(attempt.start_time or ""), moment(attempt.end_time or "")
        if start is None or end is None or end < start:
            continue
        seconds += end - start
        gpus = max(gpus, sum(len(place.gpus) for place in attempt.detail))
    if submitted is None or not gpus:
        return None
    return TraceJob(
        name=one.jobid,
        submit_us=round(submitted * _US),
        work=fixed(seconds),
        replicas=gpus,
        min=gpus,
        max=gpus,
        worker=Resources(gpu=GPU_MILLI),
        queue=one.vc,
        user=one.user,
    )
