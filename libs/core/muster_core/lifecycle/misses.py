"""A gang that its nodes failed avoids them for a while, and returns with a back-off.

A node that rejected a replica, did not start it in time or disappeared is not a failure of the job. Placing the gang on
the same nodes at once would repeat it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_core.models import JobRecord, Phase, ReplicaRecord, ReplicaState

AVOIDED_FOR_US = 600_000_000
"""How long a job avoids a node that failed it, while other nodes fit."""

_QUIET_US = 600_000_000
_SECOND_US = 1_000_000
_LONGEST_S = 60
_MOST_DOUBLINGS = 16


def was_taken(replica: ReplicaRecord) -> bool:
    """Return whether a replica ended by disruption: its node rejected it, evicted it, or disappeared."""
    lost = replica.state is ReplicaState.LOST and replica.node_lost
    return replica.state is ReplicaState.REJECTED or lost


def with_miss(record: JobRecord, nodes: Iterable[str], at: int) -> JobRecord:
    """Return the record after ``nodes`` failed its gang at ``at`` (µs)."""
    still = {node: record.avoided[node] for node in sorted(avoided_at(record, at))}
    avoided = still | dict.fromkeys(nodes, at)
    misses = 1 if _was_quiet(record, at) else record.misses + 1
    return msgspec.structs.replace(record, misses=misses, missed_at=at, avoided=avoided)


def comes_back_at(record: JobRecord) -> int:
    """Return the time (µs) from which the gang may start again: 0, at once, after the first time.

    After the second time it waits for 1 s, then 2, 4, ... 60 s.
    """
    if record.misses < 2:
        return 0
    return record.missed_at + min(1 << min(record.misses - 2, _MOST_DOUBLINGS), _LONGEST_S) * _SECOND_US


def avoided_at(record: JobRecord, now: int) -> frozenset[str]:
    """Return the nodes that the job avoids at ``now`` (µs)."""
    return frozenset(node for node, at in record.avoided.items() if now - at < AVOIDED_FOR_US)


def _was_quiet(record: JobRecord, at: int) -> bool:
    if record.phase is not Phase.RUNNING:
        return False
    return at - max(record.running_at, record.missed_at) >= _QUIET_US
