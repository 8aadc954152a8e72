"""What pod-launcher does about a job: the difference between what its record wants and what its runtime sees.

Level-triggered: the answer depends on the two states alone, so a launcher that crashed between an effect and its event finds the
rest of its work by asking again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_core.events import ReplicaChange
from muster_core.lifecycle.members import is_news
from muster_core.lifecycle.retention import outstays, stays_until
from muster_core.models import ENDED_STATES, JobRecord, ReplicaRecord, ReplicaState


class Start(msgspec.Struct, frozen=True):
    """Start this run of a replica."""

    replica: ReplicaRecord


class Stop(msgspec.Struct, frozen=True):
    """Ask this run of a replica to end."""

    role: str
    index: int
    attempt: int
    restart: int


class Report(msgspec.Struct, frozen=True):
    """Say what the runtime saw."""

    change: ReplicaChange


Step = Start | Stop | Report


def reconcile(record: JobRecord | None, seen: Sequence[ReplicaChange], now: int) -> list[Step]:
    """The steps, given everything that the runtime ``seen`` of the job's runs; ``None``: the job is not wanted at all."""
    by_run = {_key(change): change for change in seen}
    steps: list[Step] = []
    over = bool(record and record.terminal)
    outstayed = bool(record and outstays(record, now))
    for replica in record.replicas if record else ():
        unwanted = replica.leaving or replica.restarting or outstayed
        steps += _of_replica(replica, by_run.pop(_key(replica), None), now, over=over, unwanted=unwanted)
    steps += [_stop(change) for change in by_run.values() if change.state not in ENDED_STATES]
    return steps


def next_work(record: JobRecord, now: int) -> int | None:
    """The next instant (µs) at which ``reconcile`` may answer otherwise without news.

    A held-back restart is due then, or what outlived its job has stayed long enough.
    """
    if record.terminal:
        end = stays_until(record)
        return end if end is not None and end > now else None
    waits = (
        r.not_before
        for r in record.replicas
        if r.not_before and r.state is ReplicaState.PLACED and not r.leaving
    )
    return min(waits, default=None)


def _key(run: ReplicaRecord | ReplicaChange) -> tuple[int, str, int, int]:
    return (run.attempt, run.role, run.index, run.restart)


def _of_replica(
    replica: ReplicaRecord, seen: ReplicaChange | None, now: int, *, over: bool, unwanted: bool
) -> list[Step]:
    if seen is None:
        if replica.ended:
            return []
        if replica.state is not ReplicaState.PLACED:
            # Runtimes keep what ended by itself until it is reported: what is gone from one went with its node.
            lost = _report(replica, ReplicaState.LOST, now, "the runtime does not know it any more")
            return [Report(msgspec.structs.replace(lost.change, node_lost=True))]
        # A finished job may keep what runs (cleanPodPolicy None), but nothing of it begins.
        if replica.leaving or over:
            return [_report(replica, ReplicaState.REMOVED, now, "")]
        return [Start(replica)] if replica.not_before <= now else []
    steps: list[Step] = [Report(seen)] if is_news(seen, replica) else []
    if seen.state not in ENDED_STATES and (unwanted or replica.ended):
        steps.append(_stop(seen))
    return steps


def _report(replica: ReplicaRecord, state: ReplicaState, at: int, reason: str) -> Report:
    return Report(
        ReplicaChange(
            role=replica.role,
            index=replica.index,
            attempt=replica.attempt,
            restart=replica.restart,
            state=state,
            reason=reason,
            at=at,
        )
    )


def _stop(run: ReplicaChange) -> Stop:
    return Stop(role=run.role, index=run.index, attempt=run.attempt, restart=run.restart)
