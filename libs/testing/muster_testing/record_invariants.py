"""Invariants of job records, checked by tests after each step."""

from __future__ import annotations

from muster_core.models import JobRecord, Phase


def check_record(record: JobRecord) -> None:
    """Check a record.

    Raises:
        AssertionError: an invariant is violated; the message names the first.
    """
    keys = [(r.attempt, r.role, r.index) for r in record.replicas]
    _require(len(keys) == len(set(keys)), "a replica exists twice in one attempt")
    _require(
        all(r.attempt <= record.attempt for r in record.replicas), "a replica belongs to a future attempt"
    )
    _require(
        all(bool(r.ended_at) == r.ended for r in record.replicas), "a replica's end time and state disagree"
    )
    _require(record.terminal == bool(record.finished_at), "a job's end time and phase disagree")
    _require(not record.attempt or record.job is not None, "a job was placed before it was validated")
    if record.phase in (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING):
        _require(bool(record.gang()), "an active job has no replicas")
        for role in record.job.roles if record.job else ():
            gang = [m for m in record.gang() if m.role == role.name]
            _require(len(gang) <= role.max, f"{role.name} has more replicas than its maximum")
            _require(len(gang) >= min(role.min, 1), f"{role.name} has no replica")


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)
