"""How events change the replicas of a record."""

from __future__ import annotations

import msgspec

from muster_core.events import JobPlaced, JobResized, JobRestarting, ReplicaChange, ReplicasChanged
from muster_core.frameworks import is_idle
from muster_core.models import ENDED_STATES, JobRecord, ReplicaRecord, ReplicaState

_RANK = {ReplicaState.PLACED: 0, ReplicaState.LAUNCHED: 1, ReplicaState.RUNNING: 2} | dict.fromkeys(
    ENDED_STATES, 3
)

_AFTER_LAUNCH = frozenset({ReplicaState.LAUNCHED, ReplicaState.RUNNING, ReplicaState.EXITED})


def is_newer(change: ReplicaChange, known: ReplicaRecord) -> bool:
    """Return whether ``change`` is newer than the known state of that run: a replica never goes backwards.

    The first reported problem of a starting replica is new as well.
    """
    if change.state is known.state is ReplicaState.LAUNCHED:
        return bool(change.reason) and not known.reason
    return _RANK[change.state] > _RANK[known.state]


def supersedes(state: ReplicaState, known: ReplicaState) -> bool:
    """Return whether ``state`` is later than the ``known`` state of the same run."""
    return _RANK[state] > _RANK[known]


def place_replicas(record: JobRecord, event: JobPlaced, at: int) -> tuple[ReplicaRecord, ...]:
    """Return the replicas of a new attempt, after those of earlier ones whose end is not confirmed."""
    unended = tuple(r for r in record.replicas if not r.ended)
    return unended + tuple(
        ReplicaRecord(
            role=a.role,
            index=a.index,
            attempt=event.attempt,
            generation=event.generation,
            node=a.node,
            gpus=a.gpus,
            placed_at=at,
        )
        for a in event.replicas
    )


def resize_replicas(
    record: JobRecord, event: JobResized, at: int, not_before: int = 0
) -> tuple[ReplicaRecord, ...] | None:
    """Return the replicas after a resize; ``None`` if an added one still exists.

    Added replicas are held back until ``not_before`` (µs).
    """
    removed = {(ref.role, ref.index) for ref in event.removed}
    added = {(a.role, a.index): a for a in event.added}
    restarts = dict.fromkeys(added, 0)
    kept: list[ReplicaRecord] = []
    for replica in record.replicas:
        if replica.attempt == event.attempt and replica.key in added:
            if not replica.ended:
                return None
            restarts[replica.key] = replica.restart + 1
        elif replica.attempt == event.attempt and replica.key in removed:
            kept.append(msgspec.structs.replace(replica, terminating=True, beneficiary=event.beneficiary))
        elif replica.beneficiary and replica.ended:
            # A donation is valid until the next resize, so that it cannot be claimed much later.
            kept.append(msgspec.structs.replace(replica, beneficiary=""))
        else:
            kept.append(replica)
    joined = (
        ReplicaRecord(
            role=a.role,
            index=a.index,
            attempt=event.attempt,
            generation=event.generation,
            restart=restarts[key],
            node=a.node,
            gpus=a.gpus,
            not_before=not_before,
            placed_at=at,
        )
        for key, a in added.items()
    )
    return (*kept, *joined)


def restart_replicas(
    record: JobRecord, event: JobRestarting, not_before: int
) -> tuple[ReplicaRecord, ...] | None:
    """Return the named replicas placed again on their nodes; ``None`` if one of them has not ended."""
    named = {(ref.role, ref.index) for ref in event.replicas}
    replicas: list[ReplicaRecord] = []
    for replica in record.replicas:
        if replica.attempt != event.attempt or replica.key not in named:
            replicas.append(replica)
            continue
        if not replica.ended or replica.terminating:
            return None
        named.discard(replica.key)
        replicas.append(
            ReplicaRecord(
                role=replica.role,
                index=replica.index,
                attempt=replica.attempt,
                generation=replica.generation,
                restart=replica.restart + 1,
                node=replica.node,
                gpus=replica.gpus,
                address=replica.address,
                not_before=not_before,
                placed_at=not_before,
            )
        )
    return None if named else tuple(replicas)


def terminate_all(record: JobRecord) -> tuple[ReplicaRecord, ...]:
    """Return the replicas with every one that has not ended terminating."""
    return tuple(r if r.ended else msgspec.structs.replace(r, terminating=True) for r in record.replicas)


def terminate_idle(record: JobRecord) -> tuple[ReplicaRecord, ...]:
    """Return the replicas with every idle one terminating: it would never end by itself."""
    job = record.job
    return tuple(
        msgspec.structs.replace(r, terminating=True)
        if job is not None and not r.ended and is_idle(job, r)
        else r
        for r in record.replicas
    )


def change_replicas(record: JobRecord, event: ReplicasChanged, at: int) -> tuple[ReplicaRecord, ...]:
    """Apply what the runtime observed to the runs it names; old news and unknown runs change nothing."""
    # One event may contain several changes of one run: running and exited.
    changes: dict[tuple[int, str, int, int], list[ReplicaChange]] = {}
    for change in event.changes:
        changes.setdefault((change.attempt, change.role, change.index, change.restart), []).append(change)
    return tuple(
        _apply(r, changes.get((r.attempt, r.role, r.index, r.restart), []), at) for r in record.replicas
    )


def _by_one_clock(observed_at: int, replica: ReplicaRecord, at: int) -> int:
    """Return when a change happened, between the last time that is known of the replica and ``at``, when its event was stored.

    The observer's clock may be wrong or have stepped, and ages are differences to the broker's clock.
    """
    earliest = max(replica.placed_at, replica.launched_at, replica.running_at)
    return min(max(observed_at, earliest), at) if observed_at else at


def _apply(replica: ReplicaRecord, changes: list[ReplicaChange], at: int) -> ReplicaRecord:
    for change in changes:
        if not is_newer(change, replica):
            continue
        when = _by_one_clock(change.at, replica, at)
        replica = msgspec.structs.replace(
            replica,
            state=change.state,
            exit_code=change.exit_code,
            signal=change.signal,
            reason=change.reason,
            node_lost=change.node_lost,
            address=change.address or replica.address,
            launched_at=replica.launched_at or (when if change.state in _AFTER_LAUNCH else 0),
            running_at=when if change.state is ReplicaState.RUNNING else replica.running_at,
            ended_at=when if change.state in ENDED_STATES else 0,
        )
        if change.state is ReplicaState.EXITED and not replica.running_at:
            # A replica that exited has run, even if its running state was never observed.
            replica = msgspec.structs.replace(replica, running_at=replica.launched_at)
    return replica
