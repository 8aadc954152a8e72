"""Variables of programs written for Polyaxon. Source: the documentation of Polyaxon's client."""

from __future__ import annotations

from typing import Any

import msgspec

from muster_core.frameworks.gang import FrameworkGang, Variables
from muster_core.models import ReplicaRecord


def variables(gang: FrameworkGang, replica: ReplicaRecord) -> Variables:
    """Return cluster, task, experiment and parameters as JSON; ``POLYAXON_DECLARATIONS`` is the older name of the parameters."""
    job = gang.job
    cluster = {role.name: gang.listed(role.name) for role in job.roles if role.max > 0}
    experiment = {
        "project_name": job.namespace,
        "experiment_name": job.name,
        "experiment_uuid": gang.record.job_id,
    }
    parameters = _json(job.options.parameters)
    return Variables(
        env={
            "POLYAXON_CLUSTER": _json(cluster),
            "POLYAXON_TASK_INFO": _json({"type": replica.role, "index": replica.index}),
            "POLYAXON_EXPERIMENT_INFO": _json(experiment),
            "POLYAXON_PARAMS": parameters,
            "POLYAXON_DECLARATIONS": parameters,
        }
    )


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
