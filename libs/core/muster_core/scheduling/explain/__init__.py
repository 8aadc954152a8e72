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
from muster_core.scheduling.explain.explanation import Explanation, FilteredNodes, JobExplainer, RoleSize
from muster_core.scheduling.explain.remedies import Remedy, RemedyKind, SizeChange, remedy_text

__all__ = [
    "DIAGNOSIS_US_PER_CLASS",
    "Diagnoses",
    "Explanation",
    "FilteredNodes",
    "JobExplainer",
    "NoFit",
    "Remedy",
    "RemedyKind",
    "RoleSize",
    "SizeChange",
    "WaitReports",
    "diagnose",
    "remedy_text",
]
