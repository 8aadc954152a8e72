"""What a pool was told, and when it was asked to decide, as data: to be played again elsewhere, and to give the same answers there.

As a program it plays recordings (JSON, one a line on its input) and writes what was decided, one line for each decision::

    python -m muster_testing.recording < RECORDINGS > DECISIONS
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import msgspec

from muster_core.events import JobEvent, NodeChanged, StoredEvent
from muster_core.models import JobRecord, Node, QueueSpec
from muster_core.scheduling import Instruction, PoolState, Reservation
from muster_testing.pool import POOL, VirtualPool


class NodeSeen(msgspec.Struct, frozen=True, tag=True):
    """A node changed, or went."""

    change: NodeChanged


class QueuesApplied(msgspec.Struct, frozen=True, tag=True):
    """These were the queues from here on."""

    specs: tuple[QueueSpec, ...]


class EventSeen(msgspec.Struct, frozen=True, tag=True):
    """An event came back from the stream."""

    stored: StoredEvent


class Asked(msgspec.Struct, frozen=True, tag=True):
    """A decision was asked for, at ``now`` (µs)."""

    now: int


Step = NodeSeen | QueuesApplied | EventSeen | Asked
Recording = tuple[Step, ...]


class Decided(msgspec.Struct, frozen=True):
    """What came of one decision."""

    instructions: tuple[Instruction, ...]
    reservations: tuple[Reservation, ...]


class RecordedPool(VirtualPool):
    """A pool that remembers all that it was told; ``steps`` is the recording, ``decided`` what came of it."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.decided: list[Decided] = []

    def node(self, node: Node) -> None:
        """See VirtualPool."""
        self.steps.append(NodeSeen(NodeChanged(pool=POOL, node=node)))
        super().node(node)

    def drop_node(self, name: str) -> None:
        """See VirtualPool."""
        self.steps.append(NodeSeen(NodeChanged(pool=POOL, node=self.nodes[name], gone=True)))
        super().drop_node(name)

    def queues(self, *specs: QueueSpec) -> None:
        """See VirtualPool."""
        self.steps.append(QueuesApplied(specs))
        super().queues(*specs)

    def publish(self, job_id: str, event: JobEvent) -> str | None:
        """See VirtualPool."""
        illegal = super().publish(job_id, event)
        self.steps.append(EventSeen(self.stream[-1]))
        return illegal

    def decide(self) -> list[Instruction]:
        """See VirtualPool."""
        self.steps.append(Asked(self.now))
        instructions = super().decide()
        self.decided.append(Decided(tuple(instructions), self.state.reservations))
        return instructions


def play(steps: Iterable[Step], *, heir: PoolState | None = None) -> list[Decided]:
    """What a pool decides that is told ``steps``: a new one, or an ``heir`` that was told what came before."""
    pool = heir or PoolState(pool=POOL)
    decided: list[Decided] = []
    for step in steps:
        match step:
            case NodeSeen(change):
                pool.observe_node(change)
            case QueuesApplied(specs):
                pool.apply_queues(specs)
            case EventSeen(stored):
                pool.observe(stored)
            case Asked(now):
                instructions = tuple(pool.decide(now))
                decided.append(Decided(instructions, pool.reservations))
    return decided


def inherit(steps: Sequence[Step], records: Iterable[JobRecord]) -> PoolState:
    """A pool that takes over after ``steps``: it has the records, the latest queues and the nodes, and has read no event."""
    pool = PoolState(pool=POOL)
    nodes: dict[str, NodeChanged] = {}
    for step in steps:
        match step:
            case NodeSeen(change):
                nodes[change.node.name] = change
            case QueuesApplied(specs):
                pool.apply_queues(specs)
            case _:
                pass
    for change in reversed(nodes.values()):
        pool.observe_node(change)
    pool.restore(records)
    return pool


def main() -> None:
    """Play what is on the standard input."""
    for line in sys.stdin.buffer:
        recording = msgspec.json.decode(line, type=Recording)
        for decided in play(recording):
            sys.stdout.buffer.write(msgspec.json.encode(decided) + b"\n")


if __name__ == "__main__":
    main()
