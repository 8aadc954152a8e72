"""The state that a scheduling cycle works on.

``index`` has the job records and everything derived from them, ``allocations`` what each job holds of the nodes and how far
a running gang may change its size, ``transaction`` the tentative changes of a cycle and the instructions that it gives.
"""

from muster_core.scheduling.state.allocations import (
    Allocations,
    holds_allocation,
    reachable,
    resizable,
    size_of,
    surplus,
)
from muster_core.scheduling.state.index import InvariantBroken, PoolIndex, violations
from muster_core.scheduling.state.transaction import Evict, Instruction, Place, Resize, Transaction, Wait

__all__ = [
    "Allocations",
    "Evict",
    "Instruction",
    "InvariantBroken",
    "Place",
    "PoolIndex",
    "Resize",
    "Transaction",
    "Wait",
    "holds_allocation",
    "reachable",
    "resizable",
    "size_of",
    "surplus",
    "violations",
]
