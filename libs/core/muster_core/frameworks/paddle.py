"""Variables of PaddlePaddle. Source: ``paddle.distributed.launch``, and the training operator's documentation."""

from __future__ import annotations

from muster_core.frameworks.peers import Peers, Told, is_elastic
from muster_core.models import ReplicaRecord

_MASTER = "master"


def tell(peers: Peers, replica: ReplicaRecord) -> Told:
    """Return the master and the number of nodes; with a master, also the numbers of servers and trainers."""
    env = {
        "PADDLE_JOB_ID": peers.job.name,
        "PADDLE_NNODES": peers.bounds() if is_elastic(peers.job) else str(peers.size()),
        "PADDLE_MASTER": peers.address(peers.first(_MASTER, "worker"), 0),
    }
    if peers.has(_MASTER):
        env["PADDLE_SERVER_NUM" if replica.role == _MASTER else "PADDLE_TRAINER_NUM"] = "1"
    return Told(env=env, unless_set={"PYTHONUNBUFFERED": "1"})
