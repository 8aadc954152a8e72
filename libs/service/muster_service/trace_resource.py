"""The resource of spans: the service, its version and instance, and where the instance runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from muster_service.version import VERSION

NAMESPACE = "muster"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_IN_POD = "KUBERNETES_SERVICE_HOST"


def resource_attributes(
    service: str,
    instance: str,
    *,
    environment: str = "",
    environ: Mapping[str, str] = os.environ,
    hostname: str | None = None,
    pod_namespace: Path = _POD_NAMESPACE,
) -> dict[str, str]:
    """Return the resource attributes of an instance, without those that are not known.

    Args:
        service: its service.
        instance: its name, unique among the instances of the service.
        environment: the deployment environment, such as ``production``.
        environ: the environment variables; ``POD_NAME``, ``POD_NAMESPACE`` and ``NODE_NAME`` are those of the downward API.
        hostname: the name of this host; in a pod it is the name of the pod.
        pod_namespace: the file in which Kubernetes names the namespace of the pod.
    """
    host = socket.gethostname() if hostname is None else hostname
    is_pod = _IN_POD in environ
    attributes = {
        "service.name": service,
        "service.namespace": NAMESPACE,
        "service.version": VERSION,
        "service.instance.id": instance,
        "deployment.environment.name": environment,
        "host.name": environ.get("NODE_NAME", "") if is_pod else host,
        "k8s.pod.name": environ.get("POD_NAME", host) if is_pod else "",
        "k8s.namespace.name": environ.get("POD_NAMESPACE", "") or _content(pod_namespace) if is_pod else "",
        "k8s.node.name": environ.get("NODE_NAME", "") if is_pod else "",
    }
    return {name: value for name, value in attributes.items() if value}


def _content(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):
        return ""
