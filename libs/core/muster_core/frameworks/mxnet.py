"""Variables of MXNet. Source: ps-lite's DMLC_* variables, and the MXNet operator's MX_CONFIG."""

from __future__ import annotations

import msgspec

from muster_core.frameworks.peers import Peers, Told
from muster_core.models import ReplicaRecord

_SCHEDULER = "scheduler"
_SERVER = "server"
_WORKER = "worker"
_TUNER_SERVER_KEY = "tuner-server-key"


def tell(peers: Peers, replica: ReplicaRecord) -> Told:
    """Return MX_CONFIG and, with a scheduler, the variables of the parameter server library."""
    env = {"MX_CONFIG": mx_config(peers, replica)}
    if peers.has(_SCHEDULER):
        env |= {
            "DMLC_ROLE": replica.role,
            "DMLC_PS_ROOT_URI": peers.host(_SCHEDULER, 0),
            "DMLC_PS_ROOT_PORT": peers.port(_SCHEDULER, 0),
            "DMLC_NUM_SERVER": str(len(peers.indices(_SERVER))),
            "DMLC_NUM_WORKER": str(len(peers.indices(_WORKER))),
        }
        if replica.role == _WORKER:
            env["DMLC_WORKER_ID"] = str(replica.index)
    interface = peers.site.interface
    return Told(
        env=env, unless_set={"PYTHONUNBUFFERED": "1"} | ({"DMLC_INTERFACE": interface} if interface else {})
    )


def mx_config(peers: Peers, replica: ReplicaRecord) -> str:
    """Return ``{"cluster": {role: [{"url", "port"}]}, "labels": {role: tuner's key}, "task": {"type", "index"}}`` as JSON."""
    roles = [role for role in peers.job.roles if role.max > 0]
    config = {
        "cluster": {
            role.name: [
                {"url": peers.host(role.name, index), "port": int(peers.port(role.name, index))}
                for index in range(role.max)
            ]
            for role in roles
        },
        "labels": {role.name: role.template.annotations.get(_TUNER_SERVER_KEY, "") for role in roles},
        "task": {"type": replica.role, "index": replica.index},
    }
    return msgspec.json.encode(config).decode()
