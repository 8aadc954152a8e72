"""Variables of MXNet. Source: ps-lite's DMLC_* variables, and the MXNet operator's MX_CONFIG."""

from __future__ import annotations

import msgspec

from muster_core.frameworks.gang import FrameworkGang, Variables
from muster_core.models import ReplicaRecord

_SCHEDULER = "scheduler"
_SERVER = "server"
_WORKER = "worker"
_TUNER_SERVER_KEY = "tuner-server-key"


def variables(gang: FrameworkGang, replica: ReplicaRecord) -> Variables:
    """Return MX_CONFIG and, with a scheduler, the variables of the parameter server library."""
    env = {"MX_CONFIG": mx_config(gang, replica)}
    if gang.has(_SCHEDULER):
        env |= {
            "DMLC_ROLE": replica.role,
            "DMLC_PS_ROOT_URI": gang.host(_SCHEDULER, 0),
            "DMLC_PS_ROOT_PORT": gang.port(_SCHEDULER, 0),
            "DMLC_NUM_SERVER": str(len(gang.indices(_SERVER))),
            "DMLC_NUM_WORKER": str(len(gang.indices(_WORKER))),
        }
        if replica.role == _WORKER:
            env["DMLC_WORKER_ID"] = str(replica.index)
    interface = gang.context.interface
    return Variables(
        env=env, defaults={"PYTHONUNBUFFERED": "1"} | ({"DMLC_INTERFACE": interface} if interface else {})
    )


def mx_config(gang: FrameworkGang, replica: ReplicaRecord) -> str:
    """Return ``{"cluster": {role: [{"url", "port"}]}, "labels": {role: tuner's key}, "task": {"type", "index"}}`` as JSON."""
    roles = [role for role in gang.job.roles if role.max > 0]
    config = {
        "cluster": {
            role.name: [
                {"url": gang.host(role.name, index), "port": int(gang.port(role.name, index))}
                for index in range(role.max)
            ]
            for role in roles
        },
        "labels": {role.name: role.template.annotations.get(_TUNER_SERVER_KEY, "") for role in roles},
        "task": {"type": replica.role, "index": replica.index},
    }
    return msgspec.json.encode(config).decode()
