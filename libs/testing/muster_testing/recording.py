"""Recordings of a pool: its events, nodes, queues and decisions as data, to be replayed in another process.

As a program it replays recordings (JSON, one per line of standard input) and writes one line for each decision::

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
    """A node changed or was removed."""

    change: NodeChanged


class QueuesApplied(msgspec.Struct, frozen=True, tag=True):
    """Queues were applied."""

    specs: tuple[QueueSpec, ...]


class EventSeen(msgspec.Struct, frozen=True, tag=True):
    """An event was observed."""

    stored: StoredEvent


class CycleRun(msgspec.Struct, frozen=True, tag=True):
    """A scheduling cycle ran at ``now`` (µs)."""

    now: int


Step = NodeSeen | QueuesApplied | EventSeen | CycleRun
Recording = tuple[Step, ...]


class Decided(msgspec.Struct, frozen=True):
    """The result of one cycle."""

    instructions: tuple[Instruction, ...]
    reservations: tuple[Reservation, ...]


class RecordedPool(VirtualPool):
    """A pool that records its ``steps``, and the results of its cycles in ``decided``."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.decided: list[Decided] = []

    def node(self, node: Node) -> None:
        """Record and do as ``VirtualPool``."""
        self.steps.append(NodeSeen(NodeChanged(pool=POOL, node=node)))
        super().node(node)

    def drop_node(self, name: str) -> None:
        """Record and do as ``VirtualPool``."""
        self.steps.append(NodeSeen(NodeChanged(pool=POOL, node=self.nodes[name], gone=True)))
        super().drop_node(name)

    def queues(self, *specs: QueueSpec) -> None:
        """Record and do as ``VirtualPool``."""
        self.steps.append(QueuesApplied(specs))
        super().queues(*specs)

    def publish(self, job_id: str, event: JobEvent) -> str | None:
        """Record and do as ``VirtualPool``."""
        invalid = super().publish(job_id, event)
        self.steps.append(EventSeen(self.stream[-1]))
        return invalid

    def decide(self) -> list[Instruction]:
        """Record and do as ``VirtualPool``."""
        self.steps.append(CycleRun(self.now))
        instructions = super().decide()
        self.decided.append(Decided(tuple(instructions), self.state.reservations))
        return instructions


def play(steps: Iterable[Step], *, leader: PoolState | None = None) -> list[Decided]:
    """Replay ``steps`` on a new pool, or on a ``leader`` that has the state before them; return its decisions."""
    pool = leader or PoolState(pool=POOL)
    decided: list[Decided] = []
    for step in steps:
        match step:
            case NodeSeen(change):
                pool.observe_node(change)
            case QueuesApplied(specs):
                pool.apply_queues(specs)
            case EventSeen(stored):
                pool.observe(stored)
            case CycleRun(now):
                instructions = tuple(pool.decide(now))
                decided.append(Decided(instructions, pool.reservations))
    return decided


def inherit(steps: Sequence[Step], records: Iterable[JobRecord]) -> PoolState:
    """Return a new leader's pool after ``steps``: restored from the records, with the latest queues and nodes."""
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
    """Replay the recordings on standard input."""
    for line in sys.stdin.buffer:
        recording = msgspec.json.decode(line, type=Recording)
        for decided in play(recording):
            sys.stdout.buffer.write(msgspec.json.encode(decided) + b"\n")


if __name__ == "__main__":
    main()
