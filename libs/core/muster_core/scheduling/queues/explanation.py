"""What there is to say of one job: why it is where it is, and what would change that."""

from __future__ import annotations

import msgspec

from muster_core.models import Phase, Reason
from muster_core.scheduling.placement.shortfall import Miss
from muster_core.scheduling.queues.keeping import Reservation


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """``nodes`` fail ``constraint`` before any other; ``message`` says it of them in words."""

    constraint: str
    message: str
    nodes: int


class RoleSize(msgspec.Struct, frozen=True, kw_only=True):
    """A role of a running job: ``size`` members, between ``min`` and ``max``, ``wanted`` of them asked for.

    ``surplus`` of them may leave while the job goes on; ``room_for`` more would find room now.
    """

    role: str
    size: int
    min: int
    wanted: int
    max: int
    surplus: int = 0
    room_for: int = 0


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is where it is.

    ``position`` counts from 1 in the order in which the waiting jobs of its ``queue`` are tried, 0 where the job does not wait; ``ahead``
    are the ids of those before it, the first of them only where there are many (``position - 1`` in all). ``feasible_when_empty`` is None
    where it does not wait for room; else ``ruled_out`` (of ``nodes``), ``missing`` and ``nearest_miss`` say what of it there is not.
    ``not_before`` (µs) holds back a restart, 0 for none.

    ``reserved_nodes`` are those on which room is kept for it since ``reserved_since`` (µs), ``reserved_by_force`` where it is entitled
    to that room. ``behind`` is what is kept for another, in its way, since ``behind_since``. ``expected_start`` (µs) is known from, or
    not known because of, ``expected_from``. ``remedies`` say what would let it start now, or sooner; what begins with "would start now" has
    been tried on the pool. ``roles`` are those of a running job. ``notes`` are sentences about what else matters.
    """

    job_id: str
    name: str = ""
    phase: Phase
    reason: Reason
    queue: str = ""
    position: int = 0
    ahead: tuple[str, ...] = ()
    nodes: int = 0
    ruled_out: tuple[RuledOut, ...] = ()
    missing: tuple[Miss, ...] = ()
    nearest_miss: str = ""
    feasible_when_empty: bool | None = None
    not_before: int = 0
    reserved_nodes: tuple[str, ...] = ()
    reserved_since: int = 0
    reserved_by_force: bool = False
    behind: Reservation | None = None
    behind_since: int = 0
    expected_start: int | None = None
    expected_from: str = ""
    remedies: tuple[str, ...] = ()
    roles: tuple[RoleSize, ...] = ()
    notes: tuple[str, ...] = ()
