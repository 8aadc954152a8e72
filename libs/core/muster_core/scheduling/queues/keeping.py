"""Room that is kept for a waiting gang: on the nodes of its reservation, as much of what is free now as it will need then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from muster_core.models import GPU_MILLI
from muster_core.scheduling.placement import Allocation, AllocationKey, Demand, Placement, Snapshot
from muster_core.scheduling.queues.lines import Shape

LAUNCH_MARGIN_US = 30_000_000
"""What launching and ending may add to a job's own bound."""

_US = 1_000_000


class Reservation(msgspec.Struct, frozen=True, kw_only=True):
    """Room on ``nodes`` is kept for a job; it is expected to start at ``expected_at`` (µs), None where nobody knows.

    ``forced`` says that the job is entitled to that room; otherwise it has waited too long for it.
    """

    job_id: str
    queue: str
    nodes: tuple[str, ...]
    expected_at: int | None
    forced: bool


class _Rest(NamedTuple):
    """What of a node is for others once the gang stands there: by resource, and by GPU index."""

    amounts: dict[str, int]
    gpus: tuple[int, ...]
    gpu_memory: tuple[int, ...]


class Kept:
    """The room of one reservation, noted when everybody it waits for has left and the gang stands in ``snapshot``."""

    def __init__(self, reservation: Reservation, shape: Shape, found: Placement, snapshot: Snapshot) -> None:
        self.reservation = reservation
        resources = {
            name
            for role in shape.gang.roles
            for slot in (role.slot, *(slot for _, slot in role.overrides))
            for name, _ in slot.demand.amounts
        }
        self._rests: dict[str, _Rest] = {}
        for node in sorted({one.node for one in found.replicas}):
            room = snapshot.room(node)
            amounts = {name: snapshot.free_of(room, name) for name in sorted(resources)}
            self._rests[node] = _Rest(amounts, room.gpus, room.gpu_memory)

    def outlasts(self, bound_s: int | None, now: int) -> bool:
        """Whether a job that starts now has certainly ended when the room is needed."""
        at = self.reservation.expected_at
        return bound_s is not None and at is not None and now + bound_s * _US + LAUNCH_MARGIN_US <= at

    def holds(self, snapshot: Snapshot) -> Iterator[tuple[AllocationKey, Allocation]]:
        """What must not be given to others of what is free in ``snapshot``."""
        name = f"reserved/{self.reservation.job_id}"
        for node, rest in self._rests.items():
            room = snapshot.room(node)
            kept = {what: snapshot.free_of(room, what) - amount for what, amount in rest.amounts.items()}
            amounts = tuple((what, amount) for what, amount in sorted(kept.items()) if amount > 0)
            if amounts:
                yield (name, 0, node, -1), Allocation(node, Demand(amounts=amounts))
            for gpu, milli in enumerate(room.gpus):
                demand = _of_gpu(milli - rest.gpus[gpu], room.gpu_memory[gpu] - rest.gpu_memory[gpu])
                # Of a GPU without free compute nobody can take the memory.
                if milli > 0 and demand is not None:
                    yield (name, 0, node, gpu), Allocation(node, demand, (gpu,))


class KeptRoom:
    """Every reservation of a pass, standing in ``snapshot`` but where it is lifted."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._kept: dict[str, Kept] = {}
        self._standing: dict[str, list[AllocationKey]] = {}

    @property
    def reservations(self) -> tuple[Reservation, ...]:
        """Those that there are, in the order in which they were given."""
        return tuple(kept.reservation for kept in self._kept.values())

    @property
    def all(self) -> tuple[Kept, ...]:
        """The room of each of them."""
        return tuple(self._kept.values())

    def add(self, kept: Kept) -> None:
        """Keep room for one more; ``stand`` has to follow."""
        self._kept[kept.reservation.job_id] = kept

    def fulfil(self, job_id: str) -> None:
        """The job has started; ``stand`` has to follow."""
        self._kept.pop(job_id, None)

    def lift(self, job_id: str, shape: Shape, now: int) -> bool:
        """Lift what does not concern the job: its own reservation, and those before which it has ended. Answers whether any was."""
        lifted = [
            name
            for name, kept in self._kept.items()
            if name in self._standing and not _concerns(kept, job_id, shape, now)
        ]
        for name in lifted:
            self._release(name)
        return bool(lifted)

    def lift_all(self) -> None:
        """Lift whatever still stands."""
        for name in list(self._standing):
            self._release(name)

    def first_before(self, job_id: str, shape: Shape, now: int) -> Reservation | None:
        """The first reservation that concerns the job, None where none does."""
        concerning = (kept for kept in self._kept.values() if _concerns(kept, job_id, shape, now))
        first = next(concerning, None)
        return first.reservation if first is not None else None

    def stand(self) -> None:
        """Keep the room of every reservation, as it is now."""
        for name in list(self._standing):
            self._release(name)
        for name, kept in self._kept.items():
            holds = list(kept.holds(self._snapshot))
            self._snapshot.hold_all(holds)
            self._standing[name] = [key for key, _ in holds]

    def _release(self, name: str) -> None:
        for key in self._standing.pop(name):
            self._snapshot.release(key)


def _concerns(kept: Kept, job_id: str, shape: Shape, now: int) -> bool:
    """Whether a job must leave this room alone: it is another's, and will be needed before the job has certainly ended."""
    return kept.reservation.job_id != job_id and not kept.outlasts(shape.bound_s, now)


def _of_gpu(milli: int, memory: int) -> Demand | None:
    """The demand that takes so much of one GPU."""
    if milli <= 0 and memory <= 0:
        return None
    if milli >= GPU_MILLI:
        return Demand(amounts=(), gpus=1)
    return Demand(amounts=(), gpu_share=max(milli, 1), gpu_memory=max(memory, 0))
