"""Who starts when: the queue of a pool, and the decisions over it.

``PoolState`` is the whole of a scheduler apart from its bus: events in, instructions out.
"""

from muster_core.events import MANUAL_POLICY
from muster_core.scheduling.queues.changing import PoolUse, QueueChanges, change_queues
from muster_core.scheduling.queues.checks import problems_of
from muster_core.scheduling.queues.explanation import Explanation, RoleSize, RuledOut
from muster_core.scheduling.queues.instructions import Evict, Instruction, Place, Resize, Wait
from muster_core.scheduling.queues.invariants import InvariantBroken
from muster_core.scheduling.queues.keeping import Reservation
from muster_core.scheduling.queues.pool import PoolState
from muster_core.scheduling.queues.report import QueueReport

__all__ = [
    "MANUAL_POLICY",
    "Evict",
    "Explanation",
    "Instruction",
    "InvariantBroken",
    "Place",
    "PoolState",
    "PoolUse",
    "QueueChanges",
    "QueueReport",
    "Reservation",
    "Resize",
    "RoleSize",
    "RuledOut",
    "Wait",
    "change_queues",
    "problems_of",
]
