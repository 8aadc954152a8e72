"""Variables of JAX processes. Source: ``jax.distributed.initialize``, and the training operator's documentation."""

from __future__ import annotations

from muster_core.frameworks.gang import FrameworkGang, Variables
from muster_core.models import ReplicaRecord


def variables(gang: FrameworkGang, replica: ReplicaRecord) -> Variables:
    """Return coordinator, number of processes, and process id."""
    leader = gang.first("worker")
    env = {
        "COORDINATOR_ADDRESS": gang.host(leader, 0),
        "COORDINATOR_PORT": gang.port(leader, 0),
        "NUM_PROCESSES": str(gang.size()),
        "PROCESS_ID": str(gang.rank(replica, leader)),
    }
    return Variables(env=env, defaults={"PYTHONUNBUFFERED": "1"})
