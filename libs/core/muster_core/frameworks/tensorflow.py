"""TF_CONFIG. Source: TensorFlow's distributed training guide, and the training operator's documentation."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_core.frameworks.peers import Peers, Told
from muster_core.models import ReplicaRecord

_PS = "ps"
_EVALUATOR = "evaluator"


def tell(peers: Peers, replica: ReplicaRecord) -> Told:
    """Return TF_CONFIG, unless the job has a single replica."""
    config = tf_config(peers, replica)
    return Told(env={"TF_CONFIG": config} if config else {})


def tf_config(peers: Peers, replica: ReplicaRecord) -> str | None:
    """Return TF_CONFIG of one replica as JSON, or ``None`` for a job of one replica.

    Every index up to each role's maximum is listed, so that resizes neither change nor restart running replicas. By
    default an evaluator sees the cluster without being part of it. A sparse cluster contains the replica itself and every
    parameter server.
    """
    job = peers.job
    if sum(role.max for role in job.roles) <= 1:
        return None
    config: dict[str, Any] = {
        "cluster": _sparse(peers, replica) if job.options.sparse_cluster else _cluster(peers),
        "task": {"type": replica.role, "index": replica.index},
        "environment": "cloud",
    }
    if job.options.model_dir:
        config["model_dir"] = job.options.model_dir
    return msgspec.json.encode(config).decode()


def _cluster(peers: Peers) -> dict[str, list[str]]:
    options = peers.job.options
    return {
        role.name: peers.listed(role.name)
        for role in peers.job.roles
        if role.max > 0 and (role.name != _EVALUATOR or options.evaluator_in_cluster)
    }


def _sparse(peers: Peers, replica: ReplicaRecord) -> dict[str, Any]:
    cluster: dict[str, Any] = {_PS: peers.listed(_PS)}
    if replica.role != _PS:
        cluster[replica.role] = {str(replica.index): peers.address(*replica.key)}
    return cluster
