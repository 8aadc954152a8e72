"""What XGBoost's and LightGBM's replicas are told. Source: the training operator's documented variables."""

from __future__ import annotations

from muster_core.frameworks.peers import Peers, Told
from muster_core.models import ReplicaRecord

_WORKER = "worker"


def tell(peers: Peers, replica: ReplicaRecord) -> Told:
    """The master, the ranks, and the workers' addresses.

    WORKER_ADDRS is hosts alone where all workers have the same port, which is WORKER_PORT; where each has its own, it is
    ``host:port`` each and WORKER_PORT is that of the worker that is told.
    """
    leader = peers.first("master", _WORKER)
    env = {
        "MASTER_ADDR": peers.host(leader, 0),
        "MASTER_PORT": peers.port(leader, 0),
        "WORLD_SIZE": str(peers.size()),
        "RANK": str(peers.rank(replica, leader)),
    }
    if indices := peers.indices(_WORKER):
        addresses = [peers.address(_WORKER, index) for index in indices]
        ports = {address.rpartition(":")[2] for address in addresses}
        hosts = [address.rpartition(":")[0] for address in addresses]
        env["WORKER_ADDRS"] = ",".join(hosts if len(ports) == 1 else addresses)
        me = replica.index if replica.role == _WORKER else indices[0]
        env["WORKER_PORT"] = peers.port(_WORKER, me)
    return Told(env=env, unless_set={"PYTHONUNBUFFERED": "1"})
