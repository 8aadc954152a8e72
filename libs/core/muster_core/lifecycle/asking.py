"""The sizes that a user asked a running job to have: kept in its record until they are reached, so that no new leader forgets them."""

from __future__ import annotations

import msgspec

from muster_core.events import MANUAL_POLICY, CommandRequested, JobResized
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.lifecycle.starting import START_TIMEOUT
from muster_core.models import JobRecord


def with_size_asked(record: JobRecord, event: CommandRequested) -> JobRecord:
    """The record with what was asked for; a job that has no membership starts with the size that its document says."""
    if record.phase not in ACTIVE_PHASES or event.target is None:
        return record
    return msgspec.structs.replace(record, asked={**record.asked, event.role: event.target})


def after_resize(record: JobRecord, event: JobResized) -> JobRecord:
    """The record after a change of its membership: what is reached is no longer asked for, nor what was decided otherwise.

    A policy decides so, and so does the time that those who joined had to start.
    """
    if not record.asked:
        return record
    touched = {one.role for one in (*event.added, *event.removed)}
    by_others = event.policy not in ("", MANUAL_POLICY) or event.reason.code == START_TIMEOUT
    overruled = touched if by_others else set[str]()
    sizes = {role: sum(1 for one in record.members() if one.role == role) for role in record.asked}
    asked = {
        role: target
        for role, target in record.asked.items()
        if role not in overruled and not (role in touched and sizes[role] == target)
    }
    return msgspec.structs.replace(record, asked=asked)


def without_membership(record: JobRecord) -> JobRecord:
    """The record of a job that may have lost its membership: then nothing is asked of it any more."""
    if record.asked and record.phase not in ACTIVE_PHASES:
        return msgspec.structs.replace(record, asked={})
    return record
