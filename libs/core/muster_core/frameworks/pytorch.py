"""Variables of PyTorch. Source: torchrun's options (PET_*), and the training operator's documentation."""

from __future__ import annotations

from muster_core.frameworks.peers import Peers, Told, gpus_of, is_elastic
from muster_core.models import Rendezvous, ReplicaRecord

_C10D = "c10d"


def tell(peers: Peers, replica: ReplicaRecord) -> Told:
    """Return the master's address; then fixed ranks, or the rendezvous of an elastic job."""
    leader = peers.first("master", "worker")
    address, port = peers.host(leader, 0), peers.port(leader, 0)
    env = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NPROC_PER_NODE": _processes(peers, replica),
    }
    env |= _elastic(peers, replica) if is_elastic(peers.job) else _static(peers, replica, leader)
    interface = peers.site.interface
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME") if interface else ()
    return Told(env=env, unless_set={"PYTHONUNBUFFERED": "1", **dict.fromkeys(names, interface)})


def _processes(peers: Peers, replica: ReplicaRecord) -> str:
    return peers.job.options.processes or str(max(gpus_of(peers.job, *replica.key), 1))


def _static(peers: Peers, replica: ReplicaRecord, leader: str) -> dict[str, str]:
    said = peers.job.options.processes
    each = int(said) if said.isdecimal() else 1
    rank = str(peers.rank(replica, leader))
    return {
        "WORLD_SIZE": str(peers.size() * each),
        "RANK": rank,
        "PET_NODE_RANK": rank,
        "PET_NNODES": str(peers.size()),
    }


def _elastic(peers: Peers, replica: ReplicaRecord) -> dict[str, str]:
    rendezvous = peers.job.options.rendezvous or Rendezvous()
    host = peers.first("worker")
    env = {
        "PET_NNODES": peers.bounds(),
        "PET_RDZV_BACKEND": rendezvous.backend,
        "PET_RDZV_ENDPOINT": _endpoint(rendezvous) or peers.address(host, 0),
        "PET_RDZV_ID": rendezvous.job_id or f"{peers.record.job_id}-{replica.attempt}",
    }
    conf = dict(rendezvous.conf)
    if rendezvous.backend == _C10D and not rendezvous.host:
        # Agents on one machine cannot tell by address which of them hosts the store.
        conf.setdefault("is_host", "1" if replica.key == (host, 0) else "0")
    if conf:
        env["PET_RDZV_CONF"] = ",".join(f"{key}={value}" for key, value in conf.items())
    if rendezvous.max_restarts is not None:
        env["PET_MAX_RESTARTS"] = str(rendezvous.max_restarts)
    if rendezvous.standalone:
        env["PET_STANDALONE"] = "1"
    return env


def _endpoint(rendezvous: Rendezvous) -> str:
    port = "" if rendezvous.port is None else f":{rendezvous.port}"
    return f"{rendezvous.host}{port}" if rendezvous.host else ""
