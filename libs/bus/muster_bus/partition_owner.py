"""The work of an instance on the partitions that it owns: one task for each, cancelled when the partition is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

Hold = Callable[[int, asyncio.Event], Coroutine[Any, Any, None]]
"""Works on a partition until cancelled, and sets the event when the state of the partition is complete."""


class _Partition(NamedTuple):
    complete: asyncio.Event
    task: asyncio.Task[None]


class PartitionOwner:
    """Runs ``hold`` for each owned partition.

    After each change of the owned partitions, ``on_complete`` is called with them when the state of every one is complete.
    A partition is held again only after the task that held it before has ended.
    """

    def __init__(self, hold: Hold, *, on_complete: Callable[[frozenset[int]], None]) -> None:
        self._hold = hold
        self._on_complete = on_complete
        self._owned: frozenset[int] = frozenset()
        self._lost: set[int] = set()
        self._held: dict[int, _Partition] = {}
        self._changed = asyncio.Event()

    @property
    def owned(self) -> frozenset[int]:
        """The owned partitions."""
        return self._owned

    def own(self, partitions: frozenset[int]) -> None:
        """Set the owned partitions; one that was not owned for a moment is held anew."""
        self._lost |= self._held.keys() - partitions
        self._owned = partitions
        self._changed.set()

    def __contains__(self, partition: object) -> bool:
        """Return whether the partition is held and its state is complete."""
        held = self._held.get(partition) if isinstance(partition, int) else None
        return held is not None and held.complete.is_set() and partition not in self._lost

    @property
    def is_complete(self) -> bool:
        """Whether the state of every owned partition is complete."""
        return all(partition in self for partition in self._owned)

    async def run(self) -> None:
        """Hold the owned partitions until cancelled; raises what ``hold`` raises."""
        reporting: asyncio.Task[None] | None = None
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._changed.wait()
                self._changed.clear()
                if reporting is not None:
                    reporting.cancel()
                lost = [self._held.pop(partition).task for partition in self._held.keys() & self._lost]
                self._lost.clear()
                for task in lost:
                    task.cancel()
                await asyncio.gather(*lost, return_exceptions=True)
                for partition in self._owned - self._held.keys():
                    complete = asyncio.Event()
                    task = tasks.create_task(self._hold(partition, complete))
                    self._held[partition] = _Partition(complete, task)
                reporting = tasks.create_task(self._report_complete())

    async def _report_complete(self) -> None:
        await asyncio.gather(*(held.complete.wait() for held in self._held.values()))
        self._on_complete(self._owned)
