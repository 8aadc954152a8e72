"""The scheduler of a pool: a pure state machine from events to instructions.

``pool`` holds the state (``PoolState``), ``cycle`` runs one scheduling cycle, ``reasons`` builds the reasons that users read.
Packages, from the lowest layer up: ``placement`` (where a gang fits), ``queues``, ``state``, ``reservations``, ``resizing``
and ``explain``.
"""

from muster_core.scheduling.explain import (
    Explanation as Explanation,
    FilteredNodes as FilteredNodes,
    Remedy as Remedy,
    RemedyKind as RemedyKind,
    RoleSize as RoleSize,
    SizeChange as SizeChange,
    remedy_text as remedy_text,
)
from muster_core.scheduling.pool import PoolState as PoolState
from muster_core.scheduling.queues import (
    MAX_WEIGHT as MAX_WEIGHT,
    PoolUse as PoolUse,
    QueueChanges as QueueChanges,
    QueueReport as QueueReport,
    QueueTree as QueueTree,
    change_queues as change_queues,
    validate_queues as validate_queues,
)
from muster_core.scheduling.reasons import (
    EVICTION_CODES as EVICTION_CODES,
    RESIZE_CODES as RESIZE_CODES,
    WAIT_CODES as WAIT_CODES,
)
from muster_core.scheduling.reservations import Reservation as Reservation
from muster_core.scheduling.state import (
    Evict as Evict,
    Instruction as Instruction,
    InvariantBroken as InvariantBroken,
    Place as Place,
    Resize as Resize,
    Wait as Wait,
    holds_allocation as holds_allocation,
)
