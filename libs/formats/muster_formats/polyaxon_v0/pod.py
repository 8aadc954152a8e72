"""Wrap a template in a Kubernetes PodTemplateSpec with what only pods can have.

Secrets and config maps become variables unless they have a mount path. Data claims are mounted at
``/data/<claim>`` and output claims at ``/outputs/<claim>``, as in Polyaxon deployments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from muster_core.models import GPU_MILLI, Resources, Template
from muster_core.quantities import format_bytes, format_cpu
from muster_formats.names import JsonObject
from muster_formats.nodes import Json
from muster_formats.polyaxon_v0.environment import V0Environment
from muster_formats.polyaxon_v0.field_types import Reference

_GPU = "nvidia.com/gpu"


@dataclass
class _PodParts:
    """What references add to a pod."""

    volumes: list[Json] = field(default_factory=list["Json"])
    mounts: list[Json] = field(default_factory=list["Json"])
    sources: list[Json] = field(default_factory=list["Json"])
    variables: list[Json] = field(default_factory=list["Json"])

    def add_object(self, cluster_object: _ClusterObject, reference: Reference) -> None:
        """Add a secret or a config map: mounted, or as variables, with all keys or some."""
        name, items = reference.name, reference.items
        if reference.mount_path:
            volume = _volume_name(cluster_object.prefix, reference)
            kept: list[Json] = [{"key": item, "path": item} for item in items]
            source: JsonObject = {cluster_object.name_key: name, "items": kept}
            self.volumes.append({"name": volume, cluster_object.volume: _given(source)})
            self.mounts.append({"name": volume, "mountPath": reference.mount_path, "readOnly": True})
        elif items:
            for item in items:
                selector: JsonObject = {"name": name, "key": item}
                self.variables.append({"name": item, "valueFrom": {f"{cluster_object.volume}KeyRef": selector}})
        else:
            self.sources.append({f"{cluster_object.volume}Ref": {"name": name}})

    def add_claim(self, folder: str, reference: Reference) -> None:
        """Add a claim at its mount path."""
        volume = _volume_name(folder, reference)
        self.volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": reference.name}})
        self.mounts.append({"name": volume, "mountPath": f"/{folder}/{reference.name}"})


@dataclass(frozen=True, kw_only=True)
class _ClusterObject:
    """The pod field names for a secret or a config map."""

    prefix: str
    volume: str
    name_key: str


_SECRET = _ClusterObject(prefix="secret", volume="secret", name_key="secretName")
_CONFIG_MAP = _ClusterObject(prefix="config", volume="configMap", name_key="name")


def pod_template(template: Template, env: V0Environment, container: str) -> JsonObject:
    """Return the PodTemplateSpec of ``template`` with the Kubernetes-only settings of ``env``; ``container``
    names its container.
    """
    parts = _PodParts()
    parts.variables.extend({"name": name, "value": value} for name, value in template.env.items())
    for cluster_object, references in ((_SECRET, env.secrets), (_CONFIG_MAP, env.config_maps)):
        for reference in references:
            parts.add_object(cluster_object, reference)
    for folder, claims in (("data", env.data), ("outputs", env.artifacts)):
        for claim in claims:
            parts.add_claim(folder, claim)
    amounts: JsonObject = {"requests": _amounts(template.requests), "limits": _amounts(template.limits)}
    main: JsonObject = {
        "name": container,
        "image": template.image,
        "command": list(template.command),
        "env": parts.variables,
        "envFrom": parts.sources,
        "ports": [{"name": port.name, "containerPort": port.number} for port in template.ports],
        "resources": _given(amounts),
        "volumeMounts": parts.mounts,
    }
    spec: JsonObject = {
        "containers": [_given(main)],
        "volumes": parts.volumes,
        "serviceAccountName": env.service_account,
        "imagePullSecrets": [{"name": name} for name in env.image_pull_secrets],
        "securityContext": dict(env.security_context),
        "nodeSelector": dict(template.node_selector),
        "tolerations": [
            _given({"key": one.key, "operator": one.operator, "value": one.value, "effect": one.effect})
            for one in template.tolerations
        ],
        "affinity": _given({"nodeAffinity": dict(template.node_affinity)}),
    }
    metadata: JsonObject = {"labels": dict(template.labels), "annotations": dict(template.annotations)}
    return _given({"metadata": _given(metadata), "spec": _given(spec)})


def _given(fields: Mapping[str, Json]) -> JsonObject:
    return {key: value for key, value in fields.items() if value not in ("", [], {})}


def _volume_name(prefix: str, reference: Reference) -> str:
    return f"{prefix}-{reference.name.replace('.', '-')}"[:63].rstrip("-")


def _amounts(resources: Resources) -> JsonObject:
    amounts: Iterable[tuple[str, Json]] = (
        ("cpu", resources.cpu and format_cpu(resources.cpu)),
        ("memory", resources.memory and format_bytes(resources.memory)),
        (_GPU, resources.gpu // GPU_MILLI),
        *resources.extended.items(),
    )
    return {name: str(amount) for name, amount in amounts if amount}
