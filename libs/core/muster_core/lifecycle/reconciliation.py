"""Reconciliation of a job by the pod-launcher: the difference between its record and what the runtime observes.

Level-triggered: the answer depends on the two states alone, so a launcher that crashed between an effect and its event
continues by reconciling again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from muster_core.events import ReplicaChange
from muster_core.lifecycle.deadlines import replicas_kept_until, replicas_outlived
from muster_core.lifecycle.replicas import is_newer
from muster_core.models import ENDED_STATES, JobRecord, ReplicaRecord, ReplicaState


class Start(msgspec.Struct, frozen=True):
    """Start this run of a replica."""

    replica: ReplicaRecord


class Stop(msgspec.Struct, frozen=True):
    """Stop this run of a replica."""

    role: str
    index: int
    attempt: int
    restart: int


class Report(msgspec.Struct, frozen=True):
    """Report what the runtime observed."""

    change: ReplicaChange


Step = Start | Stop | Report


def reconcile(record: JobRecord | None, seen: Sequence[ReplicaChange], now: int) -> list[Step]:
    """Return the steps, given what the runtime has ``seen`` of the job's runs; without a record the job is not wanted at all."""
    by_run = {_key(change): change for change in seen}
    steps: list[Step] = []
    over = bool(record and record.terminal)
    outstayed = bool(record and replicas_outlived(record, now))
    for replica in record.replicas if record else ():
        unwanted = replica.terminating or replica.restarting or outstayed
        steps += _of_replica(replica, by_run.pop(_key(replica), None), now, over=over, unwanted=unwanted)
    steps += [_stop(change) for change in by_run.values() if change.state not in ENDED_STATES]
    return steps


def next_work(record: JobRecord, now: int) -> int | None:
    """Return the next time (µs) at which ``reconcile`` may answer differently without a change.

    A delayed restart is due then, or replicas that outlived their job have stayed long enough.
    """
    if record.terminal:
        end = replicas_kept_until(record)
        return end if end is not None and end > now else None
    waits = (
        r.not_before
        for r in record.replicas
        if r.not_before and r.state is ReplicaState.PLACED and not r.terminating
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
            # Runtimes keep ended replicas until they are reported: a missing one went with its node.
            return [_report(replica, ReplicaState.LOST, now, "the runtime no longer knows it")]
        # An ended job may keep running replicas (cleanPodPolicy None), but starts none.
        if replica.terminating or over:
            return [_report(replica, ReplicaState.REMOVED, now, "")]
        return [Start(replica)] if replica.not_before <= now else []
    steps: list[Step] = [Report(seen)] if is_newer(seen, replica) else []
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
            node_lost=state is ReplicaState.LOST,
        )
    )


def _stop(run: ReplicaChange) -> Stop:
    return Stop(role=run.role, index=run.index, attempt=run.attempt, restart=run.restart)
