"""Variables of PyTorch. Source: torchrun's options (PET_*), and the training operator's documentation."""

from __future__ import annotations

from muster_core.frameworks.gang import FrameworkGang, Variables, gpus_of, is_elastic
from muster_core.models import Rendezvous, ReplicaRecord

_C10D = "c10d"


def variables(gang: FrameworkGang, replica: ReplicaRecord) -> Variables:
    """Return the master's address; then fixed ranks, or the rendezvous of an elastic job."""
    leader = gang.first("master", "worker")
    address, port = gang.host(leader, 0), gang.port(leader, 0)
    env = {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NPROC_PER_NODE": _processes(gang, replica),
    }
    env |= _elastic(gang, replica) if is_elastic(gang.job) else _static(gang, replica, leader)
    interface = gang.context.interface
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME") if interface else ()
    return Variables(env=env, defaults={"PYTHONUNBUFFERED": "1", **dict.fromkeys(names, interface)})


def _processes(gang: FrameworkGang, replica: ReplicaRecord) -> str:
    return gang.job.options.processes or str(max(gpus_of(gang.job, *replica.key), 1))


def _static(gang: FrameworkGang, replica: ReplicaRecord, leader: str) -> dict[str, str]:
    processes = gang.job.options.processes
    each = int(processes) if processes.isdecimal() else 1
    rank = str(gang.rank(replica, leader))
    return {
        "WORLD_SIZE": str(gang.size() * each),
        "RANK": rank,
        "PET_NODE_RANK": rank,
        "PET_NNODES": str(gang.size()),
    }


def _elastic(gang: FrameworkGang, replica: ReplicaRecord) -> dict[str, str]:
    rendezvous = gang.job.options.rendezvous or Rendezvous()
    host = gang.first("worker")
    env = {
        "PET_NNODES": gang.bounds(),
        "PET_RDZV_BACKEND": rendezvous.backend,
        "PET_RDZV_ENDPOINT": _endpoint(rendezvous) or gang.address(host, 0),
        "PET_RDZV_ID": rendezvous.job_id or f"{gang.record.job_id}-{replica.attempt}",
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
