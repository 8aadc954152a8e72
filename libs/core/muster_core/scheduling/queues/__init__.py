"""The queues of a pool: the tree, quotas and shares, waiting jobs, and what operators do with queues.

``quota`` has the queue tree and the ledger (usage, guarantees, limits, dominant shares), ``waiting`` the waiting jobs by
scheduling class and their order, ``administration`` the validation of queue documents, changes to them, and reports.
"""

from muster_core.scheduling.queues.administration import (
    MAX_WEIGHT as MAX_WEIGHT,
    PoolUse as PoolUse,
    QueueChanges as QueueChanges,
    QueueReport as QueueReport,
    change_queues as change_queues,
    queue_reports as queue_reports,
    validate_queues as validate_queues,
)
from muster_core.scheduling.queues.quota import (
    SHARE_UNIT as SHARE_UNIT,
    Account as Account,
    Amounts as Amounts,
    QueueTree as QueueTree,
    QuotaLedger as QuotaLedger,
    amounts_of as amounts_of,
    gang_amounts as gang_amounts,
    largest_allowed as largest_allowed,
    max_replica_amounts as max_replica_amounts,
    minimum_gang as minimum_gang,
)
from muster_core.scheduling.queues.waiting import (
    AdmissionOrder as AdmissionOrder,
    BuildDependencies as BuildDependencies,
    ClassDiagnosis as ClassDiagnosis,
    QueueKey as QueueKey,
    SchedulingClass as SchedulingClass,
    SchedulingClasses as SchedulingClasses,
    SchedulingKey as SchedulingKey,
    drained as drained,
    exceeds_limit_alone as exceeds_limit_alone,
    gang_within_limits as gang_within_limits,
    queue_key as queue_key,
)
