"""Small native documents that the tests submit."""

from __future__ import annotations

import json
from collections.abc import Mapping


def document(name: str, *, namespace: str = "default", **spec: object) -> str:
    """Return a job with this spec."""
    metadata = {"name": name, "namespace": namespace}
    return json.dumps({"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": metadata, "spec": spec})


def several(*documents: str) -> str:
    """Return one document with these as its parts."""
    return "\n---\n".join(documents)


def job(
    name: str,
    *command: str,
    replicas: int = 1,
    cpu: str | int = "100m",
    minimum: int | None = None,
    maximum: int | None = None,
    restart_policy: str = "Never",
    worker: Mapping[str, object] | None = None,
    namespace: str = "default",
    **spec: object,
) -> str:
    """Return a job of one role, ``worker``, which sleeps by default; ``worker`` adds fields to the role."""
    role: dict[str, object] = {
        "replicas": replicas,
        "command": list(command or ("sleep", "600")),
        "resources": {"cpu": cpu},
        "restartPolicy": restart_policy,
        "gracePeriod": 2,
        "min": minimum,
        "max": maximum,
        **(worker or {}),
    }
    given = {field: value for field, value in role.items() if value is not None}
    return document(name, namespace=namespace, roles={"worker": given}, **spec)


def gang(
    name: str,
    workers: int,
    *,
    nodes: str = "all",
    size: str = "",
    floor: int = 1,
    most: int = 0,
    worker: Mapping[str, object] | None = None,
    servers: int = 1,
    server_cpu: int = 1,
    seconds: float = 600,
    role: Mapping[str, object] | None = None,
    namespace: str = "default",
    **spec: object,
) -> str:
    """Return a job of parameter servers and ``workers`` that sleep.

    Args:
        name: the job's name.
        workers: the number of workers, initially.
        nodes: the scenario whose nodes the job selects.
        size: the size of nodes to select, if any.
        floor: the minimum of workers.
        most: the maximum of workers, by default ``workers``.
        worker: the resources of a worker, by default a CPU and a GPU.
        servers: the number of parameter servers.
        server_cpu: the CPUs of a parameter server.
        seconds: how long replicas sleep.
        role: additional fields of both roles.
        namespace: the job's namespace.
        spec: additional fields of the spec.
    """

    def role_of(replicas: int, resources: Mapping[str, object], **sizes: int) -> dict[str, object]:
        return {
            "replicas": replicas,
            "image": "localhost/none:1",
            "command": ["sleep", str(seconds)],
            "resources": resources,
            "nodeSelector": {"scenario": nodes, **({"size": size} if size else {})},
            "gracePeriod": 1,
            **(role or {}),
            **sizes,
        }

    roles = {"worker": role_of(workers, worker or {"cpu": 1, "gpu": 1}, min=floor, max=most or workers)}
    if servers:
        roles["ps"] = role_of(servers, {"cpu": server_cpu})
    return document(name, namespace=namespace, roles=roles, **spec)
