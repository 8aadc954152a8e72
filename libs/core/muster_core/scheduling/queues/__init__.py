"""The queues of a pool: the tree, quotas and shares, waiting jobs, and what operators do with queues.

``quota`` has the queue tree and the ledger (usage, guarantees, limits, dominant shares), ``waiting`` the waiting jobs by
scheduling class and their order, ``administration`` the validation of queue documents, changes to them, and reports.
"""

from muster_core.scheduling.queues.administration import (
    MAX_WEIGHT,
    PoolUse,
    QueueChanges,
    QueueReport,
    change_queues,
    queue_reports,
    validate_queues,
)
from muster_core.scheduling.queues.quota import (
    SHARE_UNIT,
    Account,
    Amounts,
    QueueTree,
    QuotaLedger,
    amounts_of,
    gang_amounts,
    largest_allowed,
    max_replica_amounts,
    minimum_gang,
)
from muster_core.scheduling.queues.waiting import (
    AdmissionOrder,
    BuildDependencies,
    ClassDiagnosis,
    QueueKey,
    SchedulingClass,
    SchedulingClasses,
    SchedulingKey,
    drained,
    exceeds_limit_alone,
    gang_within_limits,
    queue_key,
)

__all__ = [
    "MAX_WEIGHT",
    "SHARE_UNIT",
    "Account",
    "AdmissionOrder",
    "Amounts",
    "BuildDependencies",
    "ClassDiagnosis",
    "PoolUse",
    "QueueChanges",
    "QueueKey",
    "QueueReport",
    "QueueTree",
    "QuotaLedger",
    "SchedulingClass",
    "SchedulingClasses",
    "SchedulingKey",
    "amounts_of",
    "change_queues",
    "drained",
    "exceeds_limit_alone",
    "gang_amounts",
    "gang_within_limits",
    "largest_allowed",
    "max_replica_amounts",
    "minimum_gang",
    "queue_key",
    "queue_reports",
    "validate_queues",
]
