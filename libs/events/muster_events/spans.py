"""The keys from which the ids of a job's spans are derived.

One service records a span and another records its children, so both must come to the same id without asking each other. All jobs of one
document share a trace: what tells their spans apart is the job's id, with which every key begins.
"""

from __future__ import annotations


def validate(job_id: str) -> str:
    """Spec-validator's verdict on the document."""
    return f"{job_id}/validate"


def queued(job_id: str, attempt: int) -> str:
    """The wait before an attempt."""
    return f"{job_id}/queued/{attempt}"


def place(job_id: str, attempt: int) -> str:
    """The decision that placed an attempt."""
    return f"{job_id}/place/{attempt}"


def launch(job_id: str, attempt: int) -> str:
    """The launch of an attempt's gang; parent of its replicas' launches."""
    return f"{job_id}/launch/{attempt}"


def launch_of(job_id: str, replica: str) -> str:
    """The launch of one run of a replica, which ``replica`` names once in its job."""
    return f"{job_id}/launch/{replica}"


def run(job_id: str) -> str:
    """The job's life from its first replica to its end; parent of what each replica ran."""
    return f"{job_id}/run"


def running(job_id: str, replica: str) -> str:
    """One run of a replica, which ``replica`` names once in its job."""
    return f"{job_id}/running/{replica}"


def propose(job_id: str, attempt: int, generation: int, why: str) -> str:
    """A proposal to grow or shrink, computed on this generation; parent of the resize that follows from it.

    ``why`` is its reason in words, which the resize takes over: on one generation another proposal may supersede the first.
    """
    return f"{job_id}/propose/{attempt}/{generation}/{why}"


def resize(job_id: str, attempt: int, generation: int) -> str:
    """The resize that made this generation; parent of the launches that it brought."""
    return f"{job_id}/resize/{attempt}/{generation}"


def restart(job_id: str, attempt: int) -> str:
    """The pause after an attempt that failed."""
    return f"{job_id}/restart/{attempt}"


def suspended(job_id: str, at: int) -> str:
    """The time that its user held a job back from ``at`` (µs) on."""
    return f"{job_id}/suspended/{at}"


def clean_up(job_id: str) -> str:
    """From the job's end until nothing of it is left."""
    return f"{job_id}/clean up"
