"""The scheduler of a pool: a pure state machine from events to instructions.

``pool`` holds the state (``PoolState``), ``cycle`` runs one scheduling cycle, ``reasons`` builds the reasons that users read.
Packages, from the lowest layer up: ``placement`` (where a gang fits), ``queues``, ``state``, ``reservations``, ``resizing``
and ``explain``.
"""

from muster_core.scheduling.explain import Explanation
from muster_core.scheduling.pool import PoolState
from muster_core.scheduling.queues import (
    MAX_WEIGHT,
    PoolUse,
    QueueChanges,
    QueueReport,
    QueueTree,
    change_queues,
    problems_of,
)
from muster_core.scheduling.reservations import Reservation
from muster_core.scheduling.state import Evict, Instruction, Place, Resize, Wait, holds_room

__all__ = [
    "MAX_WEIGHT",
    "Evict",
    "Explanation",
    "Instruction",
    "Place",
    "PoolState",
    "PoolUse",
    "QueueChanges",
    "QueueReport",
    "QueueTree",
    "Reservation",
    "Resize",
    "Wait",
    "change_queues",
    "holds_room",
    "problems_of",
]
