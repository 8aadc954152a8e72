"""Variables of PaddlePaddle. Source: ``paddle.distributed.launch``, and the training operator's documentation."""

from __future__ import annotations

from muster_core.frameworks.gang import FrameworkGang, Variables, is_elastic
from muster_core.models import ReplicaRecord

_MASTER = "master"


def variables(gang: FrameworkGang, replica: ReplicaRecord) -> Variables:
    """Return the master and the number of nodes; with a master, also the numbers of servers and trainers."""
    env = {
        "PADDLE_JOB_ID": gang.job.name,
        "PADDLE_NNODES": gang.bounds() if is_elastic(gang.job) else str(gang.size()),
        "PADDLE_MASTER": gang.address(gang.first(_MASTER, "worker"), 0),
    }
    if gang.has(_MASTER):
        env["PADDLE_SERVER_NUM" if replica.role == _MASTER else "PADDLE_TRAINER_NUM"] = "1"
    return Variables(env=env, defaults={"PYTHONUNBUFFERED": "1"})
