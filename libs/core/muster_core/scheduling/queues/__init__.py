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
    problems_of,
    queue_reports,
)
from muster_core.scheduling.queues.quota import (
    SHARE_UNIT,
    Account,
    Amounts,
    Ledger,
    QueueTree,
    amounts_of,
    dearest_amounts,
    gang_amounts,
    reduced,
    smallest,
)
from muster_core.scheduling.queues.waiting import (
    Builds,
    Line,
    Look,
    QueueKey,
    Shape,
    Turns,
    WaitingLines,
    drained,
    exceeds_alone,
    gang_within_limits,
    queue_key,
    ready_at,
)

__all__ = [
    "MAX_WEIGHT",
    "SHARE_UNIT",
    "Account",
    "Amounts",
    "Builds",
    "Ledger",
    "Line",
    "Look",
    "PoolUse",
    "QueueChanges",
    "QueueKey",
    "QueueReport",
    "QueueTree",
    "Shape",
    "Turns",
    "WaitingLines",
    "amounts_of",
    "change_queues",
    "dearest_amounts",
    "drained",
    "exceeds_alone",
    "gang_amounts",
    "gang_within_limits",
    "problems_of",
    "queue_key",
    "queue_reports",
    "ready_at",
    "reduced",
    "smallest",
]
