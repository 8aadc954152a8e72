"""From the observation of a run to the replica of a record."""

from __future__ import annotations

from muster_core.models import ENDED_STATES, ReplicaRecord
from muster_runtimes.protocols import Observation


def replica_record(
    seen: Observation, *, node: str = "", generation: int = 1, gpus: tuple[int, ...] = ()
) -> ReplicaRecord:
    """Return the run as a replica of a job record."""
    replica = seen.replica
    return ReplicaRecord(
        role=replica.role,
        index=replica.index,
        attempt=replica.attempt,
        generation=generation,
        node=node,
        restart=replica.restart,
        gpus=gpus,
        state=seen.state,
        node_lost=seen.node_lost,
        exit_code=seen.exit_code,
        signal=seen.signal,
        reason=seen.reason,
        address=seen.address,
        running_at=seen.started_at,
        ended_at=seen.at if seen.state in ENDED_STATES else 0,
    )
