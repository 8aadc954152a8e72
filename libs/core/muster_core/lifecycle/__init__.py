"""The life of a job: how facts add up to a record, what status-tracker decides on it, what pod-launcher does about it."""

from muster_core.lifecycle.decide import Finish, Forget, LifeInstruction, Restart, decide, next_deadline
from muster_core.lifecycle.fold import Folded, fold
from muster_core.lifecycle.invariants import check_record
from muster_core.lifecycle.reconcile import Report, Start, Step, Stop, next_start, reconcile

__all__ = [
    "Finish",
    "Folded",
    "Forget",
    "LifeInstruction",
    "Report",
    "Restart",
    "Start",
    "Step",
    "Stop",
    "check_record",
    "decide",
    "fold",
    "next_deadline",
    "next_start",
    "reconcile",
]
