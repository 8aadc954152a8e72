"""Reading a Kubernetes PodTemplateSpec into a ``Template``; the template itself is kept for Kubernetes.

The main container decides the replica's status and gives image, command and environment; all containers count for the resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from muster_core.frameworks import FRAMEWORK_PORTS
from muster_core.models import Framework, Port, Resources, Template
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.nodes import Json, JsonObject, node_of
from muster_formats.pods.fields import (
    REMOVED_FIELDS,
    ContainerFields,
    PodSpecAffinityFields,
    PodSpecFields,
    PodTemplateFields,
)
from muster_formats.pods.metadata import TemplateMetadataFields
from muster_formats.pods.resources import (
    KUBESHARE_SWITCH,
    ContainerResources,
    GpuShare,
    pod_resources,
    read_container_resources,
    read_gpu_share,
)
from muster_formats.pods.scheduling import (
    PodPortFields,
    check_pod_affinity,
    check_topology_spread,
    read_node_affinity,
    read_ports,
    read_tolerations,
    read_variables,
)
from muster_formats.problems import Problems, shown
from muster_formats.schema import Nested, Section

MAIN_CONTAINERS: Mapping[Framework, str] = {
    Framework.TENSORFLOW: "tensorflow",
    Framework.PYTORCH: "pytorch",
    Framework.XGBOOST: "xgboost",
    Framework.PADDLE: "paddle",
    Framework.JAX: "jax",
    Framework.MXNET: "mxnet",
}
"""Name of the main container by framework, as the training operators define it; otherwise it is the first."""

_DEFAULT_GRACE_S = 30


@dataclass(frozen=True, kw_only=True)
class MainContainer:
    """How to find and complete the main container of a template.

    ``container`` is its name; without it, or if it does not exist and is not ``required``, the first container is the main one. ``port``
    and ``variables`` are added if it has none of the name. ``kubeshare``: whether KubeShare's annotations count. ``table`` is the
    template's.
    """

    container: str = ""
    required: bool = False
    port: Port | None = None
    kubeshare: bool = False
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    table: type[PodTemplateFields] = PodTemplateFields


@dataclass(frozen=True)
class PodTemplate:
    """The field type of a PodTemplateSpec, which ``read_pod_template`` reads once the main container is known."""

    table: type[PodTemplateFields] = PodTemplateFields
    title = "object"

    def read(self, cursor: Cursor) -> Cursor | None:
        """Return the template's cursor."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        return cursor

    def schema(self) -> JsonObject:
        """Any object; Kubernetes' own schema describes it."""
        return {"type": "object"}


def main_container_of(
    framework: Framework,
    annotations: Mapping[str, str],
    *,
    container: str = "",
    required: bool = False,
    table: type[PodTemplateFields] = PodTemplateFields,
) -> MainContainer:
    """Return the main container of a framework's templates.

    Args:
        framework: The job's framework.
        annotations: The job's annotations, one of which enables KubeShare's on templates.
        container: The container's name, if the job sets it.
        required: Whether a template without that container is an error.
        table: The template's table.
    """
    port = FRAMEWORK_PORTS.get(framework)
    return MainContainer(
        container=container or MAIN_CONTAINERS.get(framework, ""),
        required=required and bool(container or framework in MAIN_CONTAINERS),
        port=Port(name=port.name, number=port.number) if port else None,
        kubeshare=annotations.get(KUBESHARE_SWITCH) == "true",
        table=table,
    )


def read_pod_template(cursor: Cursor, main: MainContainer) -> Template:
    """Read a PodTemplateSpec."""
    template = Nested(main.table).read(cursor)
    if template is None:
        return Template()
    metadata, pod = template.get(main.table.metadata), template.get(main.table.spec)
    if pod is None:
        cursor.missing("spec", "the template's spec is missing", "add spec: {containers: [...]}")
        return Template()
    annotations = (metadata.get(TemplateMetadataFields.annotations) if metadata else None) or {}
    share = read_gpu_share(metadata, main.kubeshare) if metadata else GpuShare()
    containers = _containers(pod, main)
    chosen = _find_main(containers, main)
    requests, limits = _resources(pod, containers, share)
    affinity = pod.get(PodSpecFields.affinity)
    if affinity:
        check_pod_affinity(affinity.get(PodSpecAffinityFields.pod))
        check_pod_affinity(affinity.get(PodSpecAffinityFields.anti))
    check_topology_spread(pod.get(PodSpecFields.spread))
    grace = pod.get(PodSpecFields.grace)
    variables, sources = read_variables(chosen.get(ContainerFields.env) if chosen else None)
    ports = read_ports(chosen.get(ContainerFields.ports) if chosen else None)
    _warn_kubernetes_only(pod, containers, chosen, bool(sources))
    if main.port and all(port.name != main.port.name for port in ports):
        ports = (*ports, main.port)
    return Template(
        image=(chosen.get(ContainerFields.image) if chosen else None) or "",
        command=tuple((chosen.get(ContainerFields.command) if chosen else None) or ()),
        args=tuple((chosen.get(ContainerFields.args) if chosen else None) or ()),
        env={**main.variables, **variables},
        working_dir=(chosen.get(ContainerFields.working_dir) if chosen else None) or "",
        requests=requests,
        limits=limits,
        ports=ports,
        labels=(metadata.get(TemplateMetadataFields.labels) if metadata else None) or {},
        annotations=annotations,
        node_selector=pod.get(PodSpecFields.node_selector) or {},
        tolerations=read_tolerations(pod.get(PodSpecFields.tolerations)),
        node_affinity=read_node_affinity(affinity.get(PodSpecAffinityFields.node) if affinity else None),
        grace_s=_DEFAULT_GRACE_S if grace is None else grace,
        pod=_template_for_kubernetes(cursor, chosen, main),
    )


def template_of(pod: Mapping[str, object], main: MainContainer) -> Template:
    """Read a PodTemplateSpec given as data; problems are dropped."""
    return read_pod_template(Cursor(node_of(cast("JsonObject", pod)), "", Problems()), main)


def _containers(pod: Section, main: MainContainer) -> list[Section]:
    containers = pod.get(PodSpecFields.containers)
    if not containers:
        pod.cursor.missing("containers", "the template has no container", _name_fix(main))
        return []
    names: set[str] = set()
    for section in (*containers, *(pod.get(PodSpecFields.init_containers) or ())):
        name = section.get(ContainerFields.name)
        if name is None:
            section.cursor.missing("name", "the container's name is missing", _name_fix(main))
        elif name in names:
            section.cursor.error(Code.DUPLICATE, f"two containers are named {name}", found=name)
        names.add(name or "")
        if not section.get(ContainerFields.image):
            section.cursor.missing("image", "the container's image is missing")
        read_ports(section.get(ContainerFields.ports))
        read_variables(section.get(ContainerFields.env))
        section.get(ContainerFields.command)
        section.get(ContainerFields.args)
        section.get(ContainerFields.working_dir)
    return containers


def _find_main(containers: list[Section], main: MainContainer) -> Section | None:
    for section in containers:
        if main.container and section.get(ContainerFields.name) == main.container:
            return section
    if main.required and containers:
        names = ", ".join(shown(section.get(ContainerFields.name)) for section in containers)
        first = containers[0].at("name") or containers[0].cursor
        message = f"no container is named {main.container}, which is the main container"
        first.error(Code.REQUIRED, message, found=names, allowed=main.container, fix=_name_fix(main))
    return containers[0] if containers else None


def _name_fix(main: MainContainer) -> str:
    return f"name the training container {main.container}" if main.container else ""


def _resources(pod: Section, containers: list[Section], share: GpuShare) -> tuple[Resources, Resources]:
    mains = [read_container_resources(section.get(ContainerFields.resources)) for section in containers]
    inits = [
        read_container_resources(
            section.get(ContainerFields.resources),
            sidecar=section.get(ContainerFields.restart_policy) == "Always",
        )
        for section in pod.get(PodSpecFields.init_containers) or ()
    ]
    overhead = pod.get(PodSpecFields.overhead) or {}
    if section := pod.get(PodSpecFields.resources):
        whole = read_container_resources(section)
        mains = [_without(one, whole) for one in mains]
        inits = [_without(one, whole) for one in inits]
        mains.append(whole)
    requests, limits = pod_resources(mains, inits, overhead)
    if share.request and requests.gpu and (cursor := pod.at("containers")):
        cursor.error(
            Code.CONFLICT,
            "the template requests both whole GPUs and a share of one",
            found="",
            fix="remove the GPUs from the resources, or KubeShare's annotations from the template",
        )
    return requests + share.requests, limits + share.limits


def _without(container: ContainerResources, pod: ContainerResources) -> ContainerResources:
    """A container's resources without those that the pod as a whole sets, which replace them."""
    return ContainerResources(
        {name: amount for name, amount in container.requests.items() if name not in pod.requests},
        {name: amount for name, amount in container.limits.items() if name not in pod.limits},
        container.sidecar,
    )


def _warn_kubernetes_only(
    pod: Section, containers: list[Section], chosen: Section | None, has_sources: bool
) -> None:
    keys = _kubernetes_only(pod)
    if chosen:
        keys += _kubernetes_only(chosen)
        for port in chosen.get(ContainerFields.ports) or ():
            keys += [f"ports.{key}" for key in _kubernetes_only(port) if key != PodPortFields.protocol.key]
        if resources := chosen.get(ContainerFields.resources):
            keys += [f"resources.{key}" for key in _kubernetes_only(resources)]
    keys += ["env.valueFrom"] if has_sources else []
    keys += ["further containers"] if len(containers) > 1 else []
    if keys:
        found = ", ".join(dict.fromkeys(keys))
        message = f"without effect for replicas that run as processes: {found}"
        pod.cursor.problems.warn(Code.KUBERNETES_ONLY, pod.cursor.location, message, found=found)


def _kubernetes_only(section: Section) -> list[str]:
    fields = section.table.fields()
    return [key for key in section.given_keys() if key in fields and fields[key].kubernetes]


def _template_for_kubernetes(cursor: Cursor, chosen: Section | None, main: MainContainer) -> JsonObject:
    """The raw template without what Muster decides, with the framework's port and variables."""
    raw = cast("JsonObject", cursor.node.plain())
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return raw
    for key in REMOVED_FIELDS:
        spec.pop(key, None)
    if isinstance(metadata := raw.get("metadata"), dict):
        for key, declared in TemplateMetadataFields.fields().items():
            if declared.ignored:
                metadata.pop(key, None)
        if not metadata:
            del raw["metadata"]
    containers = spec.get("containers")
    name = chosen.get(ContainerFields.name) if chosen else None
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict) and name and container.get("name") == name:
            if main.port:
                port: Json = {"name": main.port.name, "containerPort": main.port.number}
                _add_named(container, "ports", [port])
            variables: list[Json] = [{"name": key, "value": value} for key, value in main.variables.items()]
            _add_named(container, "env", variables)
    return raw


def _add_named(container: JsonObject, key: str, added: list[Json]) -> None:
    """Add to a list of named objects those whose names it does not have."""
    known = container.get(key) or []
    if not isinstance(known, list):
        return
    names = [one.get("name") for one in known if isinstance(one, dict)]
    missing = [one for one in added if isinstance(one, dict) and one.get("name") not in names]
    if missing:
        container[key] = [*missing, *known] if key == "env" else [*known, *missing]
