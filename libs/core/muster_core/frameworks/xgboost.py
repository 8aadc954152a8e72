"""Variables of XGBoost and LightGBM. Source: the training operator's documentation."""

from __future__ import annotations

from muster_core.frameworks.gang import FrameworkGang, Variables
from muster_core.models import ReplicaRecord

_WORKER = "worker"


def variables(gang: FrameworkGang, replica: ReplicaRecord) -> Variables:
    """Return the master, the ranks, and the workers' addresses.

    WORKER_ADDRS lists hosts if all workers have the port WORKER_PORT; if each has its own port, it lists ``host:port``
    and WORKER_PORT is the worker's own.
    """
    leader = gang.first("master", _WORKER)
    env = {
        "MASTER_ADDR": gang.host(leader, 0),
        "MASTER_PORT": gang.port(leader, 0),
        "WORLD_SIZE": str(gang.size()),
        "RANK": str(gang.rank(replica, leader)),
    }
    if indices := gang.indices(_WORKER):
        addresses = [gang.address(_WORKER, index) for index in indices]
        ports = {address.rpartition(":")[2] for address in addresses}
        hosts = [address.rpartition(":")[0] for address in addresses]
        env["WORKER_ADDRS"] = ",".join(hosts if len(ports) == 1 else addresses)
        me = replica.index if replica.role == _WORKER else indices[0]
        env["WORKER_PORT"] = gang.port(_WORKER, me)
    return Variables(env=env, defaults={"PYTHONUNBUFFERED": "1"})
