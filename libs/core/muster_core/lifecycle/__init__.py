"""The life cycle of a job: the reducer, the decisions of the status-tracker, and the reconciliation of the pod-launcher."""

from muster_core.lifecycle.decide import Finish, Forget, LifeInstruction, Restart, decide, next_deadline
from muster_core.lifecycle.invariants import check_record
from muster_core.lifecycle.misses import avoided_at, was_taken
from muster_core.lifecycle.reconcile import Report, Start, Step, Stop, next_work, reconcile
from muster_core.lifecycle.reducer import Folded, apply_event, begins_record
from muster_core.lifecycle.retention import Retention
from muster_core.lifecycle.starting import late_joiners, start_due, start_timeout_of, unstarted

__all__ = [
    "Finish",
    "Folded",
    "Forget",
    "LifeInstruction",
    "Report",
    "Restart",
    "Retention",
    "Start",
    "Step",
    "Stop",
    "apply_event",
    "avoided_at",
    "begins_record",
    "check_record",
    "decide",
    "late_joiners",
    "next_deadline",
    "next_work",
    "reconcile",
    "start_due",
    "start_timeout_of",
    "unstarted",
    "was_taken",
]
