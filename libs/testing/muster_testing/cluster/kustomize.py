"""Manifests of a kustomization, rendered by ``kubectl kustomize``, and the parts of them that tests read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from muster_testing.cluster.tools import require

KUBERNETES = Path(__file__).resolve().parents[4] / "deploy" / "kubernetes"
OPTIONAL = ("prometheus", "keda")
"""The components that no overlay includes, because they need custom resources."""

_TIMEOUT_S = 60


class ManifestMeta(msgspec.Struct, frozen=True):
    """Metadata of an object; those of a pod template have no name."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}


class LabelSelector(msgspec.Struct, frozen=True, rename="camel"):
    """A selector of labels."""

    match_labels: dict[str, str] = {}
    match_expressions: list[dict[str, Any]] = []

    def matches(self, labels: dict[str, str]) -> bool:
        """Return whether labels match; raises ``ValueError`` for an operator other than In."""
        for expression in self.match_expressions:
            if expression["operator"] != "In":
                raise ValueError(f"{expression['operator']} is not supported here")
            if labels.get(expression["key"]) not in expression["values"]:
                return False
        return all(labels.get(key) == value for key, value in self.match_labels.items())


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of a container."""

    name: str
    container_port: int


class Variable(msgspec.Struct, frozen=True, rename="camel"):
    """A variable of a container; ``value_from`` is set in place of ``value``."""

    name: str
    value: str = ""
    value_from: dict[str, Any] | None = None


class ContainerManifest(msgspec.Struct, frozen=True, rename="camel"):
    """A container of a pod."""

    name: str
    image: str
    env: list[Variable] = []
    env_from: list[dict[str, dict[str, str]]] = []
    ports: list[ContainerPort] = []
    resources: dict[str, dict[str, str]] = {}
    startup_probe: dict[str, Any] | None = None
    readiness_probe: dict[str, Any] | None = None
    liveness_probe: dict[str, Any] | None = None
    volume_mounts: list[dict[str, Any]] = []


class PodSpecManifest(msgspec.Struct, frozen=True, rename="camel"):
    """The specification of a pod."""

    containers: list[ContainerManifest]
    service_account_name: str = ""
    automount_service_account_token: bool = True
    enable_service_links: bool = True
    priority_class_name: str = ""
    termination_grace_period_seconds: int = 30
    volumes: list[dict[str, Any]] = []


class PodTemplateManifest(msgspec.Struct, frozen=True):
    """The pods of a workload."""

    metadata: ManifestMeta
    spec: PodSpecManifest


class WorkloadManifest(msgspec.Struct, frozen=True):
    """A Deployment, a StatefulSet or a Job."""

    kind: str
    metadata: ManifestMeta
    replicas: int | None
    template: PodTemplateManifest

    @property
    def container(self) -> ContainerManifest:
        """The only container of its pods."""
        [container] = self.template.spec.containers
        return container


class Manifests(msgspec.Struct, frozen=True):
    """Rendered objects, in the order in which kubectl applies them."""

    objects: Sequence[dict[str, Any]]

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the objects of a kind, by name."""
        return {one["metadata"]["name"]: one for one in self.objects if one["kind"] == kind}

    def workloads(self) -> dict[str, WorkloadManifest]:
        """Return what runs pods, by name."""
        return {
            one["metadata"]["name"]: WorkloadManifest(
                kind=one["kind"],
                metadata=msgspec.convert(one["metadata"], ManifestMeta),
                replicas=one["spec"].get("replicas"),
                template=msgspec.convert(one["spec"]["template"], PodTemplateManifest),
            )
            for one in self.objects
            if one["kind"] in {"Deployment", "StatefulSet", "Job"}
        }

    def environment(self, workload: WorkloadManifest) -> dict[str, str]:
        """Return the variables of a workload: those of its config maps, and its own. A field of the pod is its path."""
        config_maps = self.of_kind("ConfigMap")
        found: dict[str, str] = {}
        for source in workload.container.env_from:
            found |= config_maps[source["configMapRef"]["name"]]["data"]
        return found | {
            one.name: one.value if one.value_from is None else one.value_from["fieldRef"]["fieldPath"]
            for one in workload.container.env
        }


def render(folder: Path) -> Manifests:
    """Render a kustomization.

    Raises:
        MissingTool: kubectl is not installed.
        subprocess.CalledProcessError: the kustomization is invalid.
    """
    text = subprocess.run(
        [require("kubectl"), "kustomize", folder],
        stdout=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT_S,
        check=True,
    ).stdout
    return Manifests(list(yaml.safe_load_all(text)))


def overlay_of(
    folder: Path,
    base: str,
    *,
    components: Sequence[str] = (),
    namespace: str = "muster",
    changes: Mapping[str, object] | None = None,
) -> Path:
    """Write an overlay into an empty folder, and return the folder.

    Args:
        folder: The folder, outside of the repository.
        base: A kustomization below ``deploy/kubernetes``.
        components: Names of components that the overlay adds.
        namespace: The namespace of its objects.
        changes: More fields of the kustomization, such as ``images`` and ``patches``.
    """
    root = Path(os.path.relpath(KUBERNETES, folder.resolve()))
    content = {
        "namespace": namespace,
        "resources": [str(root / base)],
        "components": [str(root / "components" / name) for name in components],
        **(changes or {}),
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    return folder
