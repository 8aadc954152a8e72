"""TF_CONFIG. Source: TensorFlow's distributed training guide, and the training operator's documented layout."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from muster_core.models import Job, ReplicaRecord

_NOT_IN_CLUSTER = "evaluator"


def tf_config(job: Job, replica: ReplicaRecord, addresses: Mapping[tuple[str, int], str]) -> str | None:
    """The JSON of TF_CONFIG for one replica; ``None`` for a job of one replica, which needs none.

    Every index up to each role's maximum is listed from the beginning, so that growing and shrinking neither changes nor restarts
    those that run. An evaluator is told the cluster but is not part of it.
    """
    if sum(role.max for role in job.roles) <= 1:
        return None
    cluster = {
        role.name: [addresses[(role.name, index)] for index in range(role.max)]
        for role in job.roles
        if role.max > 0 and role.name != _NOT_IN_CLUSTER
    }
    config = {
        "cluster": cluster,
        "task": {"type": replica.role, "index": replica.index},
        "environment": "cloud",
    }
    return msgspec.json.encode(config).decode()
