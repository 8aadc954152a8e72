"""The state that a scheduling cycle works on.

``index`` has the job records and everything derived from them, ``allocations`` what each job holds of the nodes and how far
a running gang may change its size, ``transaction`` the tentative changes of a cycle and the instructions that it gives.
"""

from muster_core.scheduling.state.allocations import (
    Allocations as Allocations,
    holds_allocation as holds_allocation,
    reachable as reachable,
    resizable as resizable,
    size_of as size_of,
    surplus as surplus,
)
from muster_core.scheduling.state.index import (
    InvariantBroken as InvariantBroken,
    PoolIndex as PoolIndex,
    violations as violations,
)
from muster_core.scheduling.state.transaction import (
    Evict as Evict,
    Instruction as Instruction,
    Place as Place,
    Resize as Resize,
    Transaction as Transaction,
    Wait as Wait,
)
