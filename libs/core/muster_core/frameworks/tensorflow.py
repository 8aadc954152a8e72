"""TF_CONFIG. Source: TensorFlow's distributed training guide, and the training operator's documentation."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_core.frameworks.gang import FrameworkGang, Variables
from muster_core.models import ReplicaRecord

_PS = "ps"
_EVALUATOR = "evaluator"


def variables(gang: FrameworkGang, replica: ReplicaRecord) -> Variables:
    """Return TF_CONFIG, unless the job has a single replica."""
    config = tf_config(gang, replica)
    return Variables(env={"TF_CONFIG": config} if config else {})


def tf_config(gang: FrameworkGang, replica: ReplicaRecord) -> str | None:
    """Return TF_CONFIG of one replica as JSON, or ``None`` for a job of one replica.

    Every index up to each role's maximum is listed, so that resizes neither change nor restart running replicas. By
    default an evaluator sees the cluster without being part of it. A sparse cluster contains the replica itself and every
    parameter server.
    """
    job = gang.job
    if sum(role.max for role in job.roles) <= 1:
        return None
    config: dict[str, Any] = {
        "cluster": _sparse(gang, replica) if job.options.sparse_cluster else _cluster(gang),
        "task": {"type": replica.role, "index": replica.index},
        "environment": "cloud",
    }
    if job.options.model_dir:
        config["model_dir"] = job.options.model_dir
    return msgspec.json.encode(config).decode()


def _cluster(gang: FrameworkGang) -> dict[str, list[str]]:
    options = gang.job.options
    return {
        role.name: gang.listed(role.name)
        for role in gang.job.roles
        if role.max > 0 and (role.name != _EVALUATOR or options.evaluator_in_cluster)
    }


def _sparse(gang: FrameworkGang, replica: ReplicaRecord) -> dict[str, Any]:
    cluster: dict[str, Any] = {_PS: gang.listed(_PS)}
    if replica.role != _PS:
        cluster[replica.role] = {str(replica.index): gang.address(*replica.key)}
    return cluster
