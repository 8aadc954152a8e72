"""Sizes that a user requested of a running job, kept in its record until reached, so that a new leader knows them."""

from __future__ import annotations

import msgspec

from muster_core.events import MANUAL_POLICY, CommandRequested, JobResized
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.lifecycle.starting import START_TIMEOUT
from muster_core.models import JobRecord


def with_size_asked(record: JobRecord, event: CommandRequested) -> JobRecord:
    """Return the record with a requested size; a job without a membership starts with the size in its document."""
    if record.phase not in ACTIVE_PHASES or event.target is None:
        return record
    return msgspec.structs.replace(record, asked={**record.asked, event.role: event.target})


def after_resize(record: JobRecord, event: JobResized) -> JobRecord:
    """Return the record after a resize: a requested size is dropped when it is reached or overridden.

    A policy overrides it, and so does a start timeout of the added replicas.
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
    """Return the record of a job that may have lost its membership: requested sizes are dropped."""
    if record.asked and record.phase not in ACTIVE_PHASES:
        return msgspec.structs.replace(record, asked={})
    return record
