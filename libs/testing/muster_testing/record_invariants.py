"""Invariants of every record; tests check them after each step."""

from __future__ import annotations

from muster_core.models import JobRecord, Phase


def check_record(record: JobRecord) -> None:
    """Raise ``AssertionError`` naming the first violated invariant."""
    keys = [(r.attempt, r.role, r.index) for r in record.replicas]
    _hold(len(keys) == len(set(keys)), "a replica exists twice in one attempt")
    _hold(all(r.attempt <= record.attempt for r in record.replicas), "a replica belongs to a future attempt")
    _hold(all(bool(r.ended_at) == r.ended for r in record.replicas), "a replica's end and its state disagree")
    _hold(record.terminal == bool(record.finished_at), "a job's end and its phase disagree")
    _hold(not record.attempt or record.job is not None, "a job was placed before it was validated")
    if record.phase in (Phase.PLACED, Phase.LAUNCHING, Phase.RUNNING):
        _hold(bool(record.gang()), "an active job has no members")
        for role in record.job.roles if record.job else ():
            members = [m for m in record.gang() if m.role == role.name]
            _hold(len(members) <= role.max, f"{role.name} has more members than its maximum")
            _hold(len(members) >= min(role.min, 1), f"{role.name} has no member")


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise AssertionError(otherwise)
