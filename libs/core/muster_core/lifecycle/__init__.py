"""The life cycle of a job.

``reducer`` applies events to a job record, with ``transitions``, ``replicas``, ``commands``, ``progress`` and ``history``.
``decisions`` are those of the status-tracker, to end or restart a job, by ``success``, ``backoff`` and ``deadlines``.
``reconciliation`` compares a record with the replicas that a runtime observes. ``job_kinds`` has the rules of builds and services.
"""

from muster_core.lifecycle.backoff import AVOIDED_FOR_US, avoided_at, was_disrupted
from muster_core.lifecycle.deadlines import (
    START_TIMEOUT,
    Retention,
    late_additions,
    start_due,
    start_timeout_of,
    unstarted,
)
from muster_core.lifecycle.decisions import (
    DeleteRecord,
    Finish,
    LifecycleInstruction,
    Restart,
    decide,
    next_deadline,
)
from muster_core.lifecycle.job_kinds import (
    BUILD_FAILED,
    WAITING_FOR_BUILD,
    address_of,
    awaits_build,
    is_build,
)
from muster_core.lifecycle.progress import MILLI, SpeedUp, speed_up_of
from muster_core.lifecycle.reconciliation import Report, Start, Step, Stop, next_work, reconcile
from muster_core.lifecycle.reducer import Transition, apply_event, begins_record
from muster_core.lifecycle.success import restart_scope_of
from muster_core.lifecycle.transitions import ACTIVE_PHASES, WAITING_PHASES

__all__ = [
    "ACTIVE_PHASES",
    "AVOIDED_FOR_US",
    "BUILD_FAILED",
    "MILLI",
    "START_TIMEOUT",
    "WAITING_FOR_BUILD",
    "WAITING_PHASES",
    "DeleteRecord",
    "Finish",
    "LifecycleInstruction",
    "Report",
    "Restart",
    "Retention",
    "SpeedUp",
    "Start",
    "Step",
    "Stop",
    "Transition",
    "address_of",
    "apply_event",
    "avoided_at",
    "awaits_build",
    "begins_record",
    "decide",
    "is_build",
    "late_additions",
    "next_deadline",
    "next_work",
    "reconcile",
    "restart_scope_of",
    "speed_up_of",
    "start_due",
    "start_timeout_of",
    "unstarted",
    "was_disrupted",
]
