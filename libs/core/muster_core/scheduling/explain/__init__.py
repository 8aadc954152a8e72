"""Why jobs wait, and what would let them start.

``diagnosis`` finds why scheduling classes do not fit and reports it to their jobs, ``explanation`` answers for one job,
``what_if`` tries changes on the pool inside a transaction, ``remedies`` describes the changes that help.
"""

from muster_core.scheduling.explain.diagnosis import (
    DIAGNOSIS_US_PER_CLASS,
    Diagnoses,
    NoFit,
    WaitReports,
    diagnose,
)
from muster_core.scheduling.explain.explanation import Explainer, Explanation, RoleSize, RuledOut
from muster_core.scheduling.explain.remedies import Remedy, RemedyKind, ReplicaChange, remedy_text

__all__ = [
    "DIAGNOSIS_US_PER_CLASS",
    "Diagnoses",
    "Explainer",
    "Explanation",
    "NoFit",
    "Remedy",
    "RemedyKind",
    "ReplicaChange",
    "RoleSize",
    "RuledOut",
    "WaitReports",
    "diagnose",
    "remedy_text",
]
