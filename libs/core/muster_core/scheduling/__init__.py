"""The scheduler of a pool: a pure state machine from events to instructions.

``pool`` holds the state (``PoolState``), ``cycle`` runs one scheduling cycle, ``reasons`` builds the reasons that users read.
Packages, from the lowest layer up: ``placement`` (where a gang fits), ``queues``, ``state``, ``reservations``, ``resizing``
and ``explain``.
"""

from muster_core.scheduling.explain import (
    Explanation,
    FilteredNodes,
    Remedy,
    RemedyKind,
    RoleSize,
    SizeChange,
    remedy_text,
)
from muster_core.scheduling.pool import PoolState
from muster_core.scheduling.queues import (
    MAX_WEIGHT,
    PoolUse,
    QueueChanges,
    QueueReport,
    QueueTree,
    change_queues,
    validate_queues,
)
from muster_core.scheduling.reservations import Reservation
from muster_core.scheduling.state import (
    Evict,
    Instruction,
    InvariantBroken,
    Place,
    Resize,
    Wait,
    holds_allocation,
)

__all__ = [
    "MAX_WEIGHT",
    "Evict",
    "Explanation",
    "FilteredNodes",
    "Instruction",
    "InvariantBroken",
    "Place",
    "PoolState",
    "PoolUse",
    "QueueChanges",
    "QueueReport",
    "QueueTree",
    "Remedy",
    "RemedyKind",
    "Reservation",
    "Resize",
    "RoleSize",
    "SizeChange",
    "Wait",
    "change_queues",
    "holds_allocation",
    "remedy_text",
    "validate_queues",
]
