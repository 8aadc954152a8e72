"""Back-off after failures: delays of restarts, and nodes that a job avoids.

Ten minutes without a restart reset the delay of every job. They also reset the failures of a service: it stays up for
months, and the limit should end what never comes up, not what fails once a week.

A node that rejected a replica, did not start it in time or disappeared is not a failure of the job. Placing the gang on
the same nodes at once would repeat it, so the job avoids them for a while and returns with a delay of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from muster_core.models import JobKind, JobRecord, Phase, ReplicaRecord, ReplicaState

RESET_AFTER_US = 600_000_000
"""Without a restart for this time, the back-off starts anew."""

AVOIDED_FOR_US = 600_000_000
"""How long a job avoids a node that failed it, while other nodes fit."""

_SECOND_US = 1_000_000
_LONGEST_S = 60
_FIRST_DELAY_MS = 1000
_LONGEST_DELAY_MS = 300_000
_MOST_DOUBLINGS = 9


def delay_ms(record: JobRecord, at: int) -> int:
    """Return the delay of the next restart after an end at ``at`` (µs): 1 s, doubled at every restart in a row, up to 5 min."""
    return min(_FIRST_DELAY_MS << min(restarts_at(record, at), _MOST_DOUBLINGS), _LONGEST_DELAY_MS)


def restarts_at(record: JobRecord, at: int) -> int:
    """Return the restarts in a row before ``at`` (µs)."""
    return 0 if _forgiven(record, at) else record.restarts


def failures_at(record: JobRecord, at: int) -> int:
    """Return the failures before ``at`` (µs) that count against the back-off limit."""
    is_service = record.job is not None and record.job.kind is JobKind.SERVICE
    return 0 if is_service and _forgiven(record, at) else record.failures


def _forgiven(record: JobRecord, at: int) -> bool:
    return at - record.restarted_at >= RESET_AFTER_US


def was_disrupted(replica: ReplicaRecord) -> bool:
    """Return whether a replica ended by disruption: its node rejected it, evicted it, or disappeared."""
    lost = replica.state is ReplicaState.LOST and replica.node_lost
    return replica.state is ReplicaState.REJECTED or lost


def with_failed_nodes(record: JobRecord, nodes: Iterable[str], at: int) -> JobRecord:
    """Return the record after ``nodes`` failed its gang at ``at`` (µs)."""
    still = {node: record.avoided[node] for node in sorted(avoided_at(record, at))}
    avoided = still | dict.fromkeys(nodes, at)
    node_failures = 1 if _ran_without_failure(record, at) else record.node_failures + 1
    return msgspec.structs.replace(record, node_failures=node_failures, node_failed_at=at, avoided=avoided)


def retry_at(record: JobRecord) -> int:
    """Return the time (µs) from which the gang may start again: 0, at once, after the first time.

    After the second time it waits for 1 s, then 2, 4, ... 60 s.
    """
    if record.node_failures < 2:
        return 0
    return record.node_failed_at + min(1 << min(record.node_failures - 2, 16), _LONGEST_S) * _SECOND_US


def avoided_at(record: JobRecord, now: int) -> frozenset[str]:
    """Return the nodes that the job avoids at ``now`` (µs)."""
    return frozenset(node for node, at in record.avoided.items() if now - at < AVOIDED_FOR_US)


def _ran_without_failure(record: JobRecord, at: int) -> bool:
    if record.phase is not Phase.RUNNING:
        return False
    return at - max(record.running_at, record.node_failed_at) >= RESET_AFTER_US
