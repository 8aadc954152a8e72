"""Defects that Muster had, or might get: each function puts one back in, for the rest of this operating system process.

``python tests/simulation/find_defects.py`` shows how soon the simulation finds each of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any

import muster_bus.key_value
import muster_scheduler.service
import muster_service.grpc_client
from muster_bus import Fence
from muster_bus.membership import Membership
from muster_bus.partition_reader import PartitionReader
from muster_bus.pause_detector import PauseDetector
from muster_core.events import CommandRequested
from muster_core.models import JobRecord, ReplicaRecord, ReplicaState
from muster_core.scheduling.state import allocations
from muster_gateway.bus import BusSubmissions
from muster_pod_launcher.work_queue import JobWorkQueue
from muster_runtimes.process import ProcessRuntime
from muster_scheduler.adapters import FencedDecisionLog

_COMMAND_DELAY_S = 12.0


def blind_takeover() -> None:
    """An instance of pod-launcher takes a partition, and reports what it has not looked for as lost."""

    async def do_nothing(_: object, __: object) -> None:
        return

    _replace(ProcessRuntime, "acquire_partition", do_nothing)
    _replace(ProcessRuntime, "refresh_job", do_nothing)


def stale_owner() -> None:
    """An instance that could not renew its membership in time keeps its partitions, with the records of the past."""

    def always(_: object) -> bool:
        return True

    def never(_: Membership) -> bool:
        return False

    def ignore(_: Membership, __: bool) -> None:
        return

    _replace(Membership, "is_current", property(always))
    _replace(PauseDetector, "has_caught_up", property(always))
    _replace(Membership, "_has_lapsed", property(never, ignore))


def standby_asked() -> None:
    """The gateway asks one instance of scheduler for ever, even if that does not lead."""

    def nothing(*_: object) -> str:
        return "{}"

    _replace(muster_service.grpc_client, "_service_config", nothing)


def double_placement() -> None:
    """The scheduler gives away what a replica holds that does not run yet."""
    original = allocations.holds_allocation

    def holds(record: JobRecord, replica: ReplicaRecord) -> bool:
        return original(record, replica) and replica.state is ReplicaState.RUNNING

    _replace(allocations, "holds_allocation", holds)


def stale_leader() -> None:
    """A new leader decides before it has read what its predecessor decided, and without the fence of its epoch."""
    original: Callable[..., None] = FencedDecisionLog.__init__

    def initialise(self: FencedDecisionLog, *, bus: Any, fence: Fence, pool: str) -> None:
        original(self, bus=bus, fence=fence, pool=pool)
        self._fence = None  # type: ignore[assignment] # pyright: ignore

    async def read_nothing(self: PartitionReader) -> None:
        self.caught_up.set()
        self._advance(await self._bus.last_sequence(self._stream))  # pyright: ignore[reportPrivateUsage]

    class StaleReader(PartitionReader):
        _catch_up = read_nothing

    _replace(FencedDecisionLog, "__init__", initialise)
    _replace(muster_scheduler.service, "PartitionReader", StaleReader)


def lost_wake_up() -> None:
    """A job that changes while it is reconciled is not reconciled again."""
    original = JobWorkQueue.add

    def add(self: JobWorkQueue, job_id: str) -> None:
        if job_id not in self._running:  # pyright: ignore[reportPrivateUsage]
            original(self, job_id)

    _replace(JobWorkQueue, "add", add)


def missed_deletion() -> None:
    """A watch of the records of ended jobs does not report that one was deleted."""
    original: Callable[..., list[Any]] = muster_bus.key_value._headers  # pyright: ignore[reportPrivateUsage]

    def headers(*arguments: Any) -> list[Any]:
        return [change for change in original(*arguments) if not change.removed]

    _replace(muster_bus.key_value, "_headers", headers)


def reordered_commands() -> None:
    """The gateway acknowledges commands and stores them later, not in the order of their acknowledgement."""
    original = BusSubmissions.command
    kept: set[asyncio.Task[int]] = set()

    async def store_later(self: BusSubmissions, commands: Mapping[str, CommandRequested]) -> int:
        await asyncio.sleep(random.uniform(0.0, _COMMAND_DELAY_S))
        return await original(self, commands)

    async def command(self: BusSubmissions, commands: Mapping[str, CommandRequested]) -> int:
        storing = asyncio.create_task(store_later(self, commands))
        kept.add(storing)
        storing.add_done_callback(kept.discard)
        return 0

    _replace(BusSubmissions, "command", command)


DEFECTS: Mapping[str, Callable[[], None]] = {
    defect.__name__.replace("_", "-"): defect
    for defect in (
        blind_takeover,
        stale_owner,
        standby_asked,
        double_placement,
        stale_leader,
        lost_wake_up,
        missed_deletion,
        reordered_commands,
    )
}
"""All of them, by name."""


def _replace(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)


DETECTED_AS: Mapping[str, str] = {
    "blind-takeover": "false loss",
    "stale-owner": "stale",
    "standby-asked": "unavailable",
    "double-placement": "overcommit",
    "stale-leader": "stuck",
    "lost-wake-up": "stuck",
    "missed-deletion": "left over",
    "reordered-commands": "stuck",
}
"""The kind of violation that shows each defect."""
