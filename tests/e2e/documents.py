"""Small native documents that the tests submit."""

from __future__ import annotations

import json


def job(
    name: str,
    *command: str,
    replicas: int = 1,
    cpu: str = "100m",
    minimum: int | None = None,
    maximum: int | None = None,
    restart_policy: str = "Never",
    run: dict[str, object] | None = None,
) -> str:
    """A plain job of one role, ``worker``."""
    role: dict[str, object] = {
        "replicas": replicas,
        "command": list(command),
        "resources": {"cpu": cpu},
        "restartPolicy": restart_policy,
        "gracePeriod": 2,
    }
    if minimum is not None:
        role["min"] = minimum
    if maximum is not None:
        role["max"] = maximum
    spec: dict[str, object] = {"roles": {"worker": role}}
    if run:
        spec["run"] = run
    document = {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    return json.dumps(document)
