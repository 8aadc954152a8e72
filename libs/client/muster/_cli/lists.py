"""The table of jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.table import Table
from rich.text import Text

from muster._cli import words
from muster._cli.tables import table
from muster_rpc.v1 import job_pb2

_KEYS: dict[str, Callable[[job_pb2.Job], tuple[int | str, ...]]] = {
    "age": lambda job: (),
    "name": lambda job: (job.name or job.job_id, job.namespace),
    "phase": lambda job: (job.status.phase,),
    "queue": lambda job: (job.status.queue,),
    "priority": lambda job: (-job.spec.priority,),
}
SORTS = tuple(_KEYS)
"""Sort orders of jobs; ties are newest first."""


def in_order(jobs: Iterable[job_pb2.Job], sort: str) -> list[job_pb2.Job]:
    """Return jobs in one of ``SORTS``."""
    key = _KEYS[sort]
    return sorted(jobs, key=lambda job: (*key(job), -job.status.submitted_at.ToMicroseconds()))


def job_table(jobs: Sequence[job_pb2.Job], now: float) -> Table:
    """Print jobs in the given order. Ids and namespaces appear only if names alone are ambiguous."""
    names = [(job.namespace, job.name) for job in jobs]
    ambiguous = len(set(names)) < len(names)
    spread = len({job.namespace for job in jobs}) > 1
    rows = [
        (
            job.namespace if spread else "",
            job.name or job.job_id,
            job.job_id if ambiguous else "",
            Text(words.phase_of(job), style=words.phase_style(job)),
            words.running_of_all(job),
            job.status.queue,
            words.since(job.status.submitted_at, now),
            job.status.address,
            job.status.reason.message or job.status.reason.code,
        )
        for job in jobs
    ]
    return table(("NAMESPACE", "NAME", "ID", "PHASE", "REPLICAS", "QUEUE", "AGE", "ADDRESS", "REASON"), rows)
