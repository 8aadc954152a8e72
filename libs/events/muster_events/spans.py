"""Keys from which the span ids of a job are derived.

One service records a span and another its children, so both derive the same id. A parent is recorded before or with its
children, never after them, so that no span of a running job lacks its parent; spans that last long have no children. All jobs
of one document share a trace: every key begins with the job id.
"""

from __future__ import annotations


def validate(job_id: str) -> str:
    """The spec-validator's validation of the document."""
    return f"{job_id}/validate"


def queued(job_id: str, attempt: int) -> str:
    """The wait before an attempt."""
    return f"{job_id}/queued/{attempt}"


def place(job_id: str, attempt: int) -> str:
    """The decision that placed an attempt; parent of the launches of its replicas."""
    return f"{job_id}/place/{attempt}"


def evict(job_id: str, attempt: int) -> str:
    """The decision that evicted an attempt."""
    return f"{job_id}/evict/{attempt}"


def launch(job_id: str, attempt: int) -> str:
    """The launch of an attempt's gang, until all its replicas have started or the attempt is given up."""
    return f"{job_id}/launch/{attempt}"


def launch_of(job_id: str, replica: str) -> str:
    """The launch of one replica run, recorded when it runs; parent of its run and of the spans of its program.

    ``replica`` is unique in its job.
    """
    return f"{job_id}/launch/{replica}"


def run(job_id: str) -> str:
    """The job's life from its first replica to its end."""
    return f"{job_id}/run"


def running(job_id: str, replica: str) -> str:
    """One replica run; ``replica`` is unique in its job."""
    return f"{job_id}/running/{replica}"


def propose(job_id: str, attempt: int, generation: int, why: str) -> str:
    """A proposal to resize, computed on this generation; parent of the resize.

    ``why`` is its reason in words, which the resize repeats: another proposal may supersede it on the same generation.
    """
    return f"{job_id}/propose/{attempt}/{generation}/{why}"


def resize(job_id: str, attempt: int, generation: int) -> str:
    """The resize that made this generation; parent of its launches."""
    return f"{job_id}/resize/{attempt}/{generation}"


def restart(job_id: str, attempt: int) -> str:
    """The pause after a failed attempt."""
    return f"{job_id}/restart/{attempt}"


def suspended(job_id: str, at: int) -> str:
    """A suspension from ``at`` (µs) on."""
    return f"{job_id}/suspended/{at}"


def command(job_id: str, name: str, request_id: str) -> str:
    """The handling of a user's command."""
    return f"{job_id}/command/{name}/{request_id}"


def clean_up(job_id: str) -> str:
    """From the job's end until all its replicas are gone."""
    return f"{job_id}/clean up"
