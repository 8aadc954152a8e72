"""Variables of JAX processes. Source: ``jax.distributed.initialize``, and the training operator's documentation."""

from __future__ import annotations

from muster_core.frameworks.peers import Peers, Told
from muster_core.models import ReplicaRecord


def tell(peers: Peers, replica: ReplicaRecord) -> Told:
    """Return coordinator, number of processes, and process id."""
    leader = peers.first("worker")
    env = {
        "COORDINATOR_ADDRESS": peers.host(leader, 0),
        "COORDINATOR_PORT": peers.port(leader, 0),
        "NUM_PROCESSES": str(peers.size()),
        "PROCESS_ID": str(peers.rank(replica, leader)),
    }
    return Told(env=env, unless_set={"PYTHONUNBUFFERED": "1"})
