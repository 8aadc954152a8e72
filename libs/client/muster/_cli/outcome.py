"""The outcome of a job as a sentence and an exit code."""

from __future__ import annotations

from muster._cli import exits, words
from muster_core.models import Phase
from muster_rpc.convert import phase_from_proto
from muster_rpc.v1 import job_pb2

_VERBS = {
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.REJECTED: "was rejected",
    Phase.CANCELLED: "was cancelled",
    Phase.TIMED_OUT: "timed out",
}


def outcome_line(job: job_pb2.Job) -> str:
    """Return the outcome of a job, or its state, as one sentence."""
    phase = phase_from_proto(job.status.phase)
    name = job.name or job.job_id
    verb = _VERBS.get(phase, f"is {words.phase_of(job)}") if phase else "is in an unknown phase"
    begun, ended = words.instant(job.status.submitted_at), words.instant(job.status.finished_at)
    took = f" after {words.duration(ended - begun)}" if begun and ended else ""
    reason = job.status.reason.message or job.status.reason.code
    told = f": {reason}" if reason and phase is not Phase.SUCCEEDED else ""
    return f"{name} {verb}{took}{told}"


def outcome_style(job: job_pb2.Job) -> str:
    """Return the colour of that sentence."""
    return words.phase_style(job)


def exit_code(job: job_pb2.Job) -> int:
    """Return 0 for a succeeded job, 3 for a rejected document, else 1."""
    match phase_from_proto(job.status.phase):
        case Phase.SUCCEEDED:
            return exits.OK
        case Phase.REJECTED:
            return exits.REFUSED
        case _:
            return exits.JOB_FAILED
