"""Why jobs wait, and what would let them start.

``diagnosis`` finds why scheduling classes do not fit and reports it to their jobs, ``explanation`` answers for one job,
``what_if`` tries changes on the pool inside a transaction, ``remedies`` describes the changes that help.
"""

from muster_core.scheduling.explain.diagnosis import (
    DIAGNOSIS_US_PER_CLASS as DIAGNOSIS_US_PER_CLASS,
    Diagnoses as Diagnoses,
    NoFit as NoFit,
    WaitReports as WaitReports,
    diagnose as diagnose,
)
from muster_core.scheduling.explain.explanation import (
    Explanation as Explanation,
    FilteredNodes as FilteredNodes,
    JobExplainer as JobExplainer,
    RoleSize as RoleSize,
)
from muster_core.scheduling.explain.remedies import (
    Remedy as Remedy,
    RemedyKind as RemedyKind,
    SizeChange as SizeChange,
    remedy_text as remedy_text,
)
