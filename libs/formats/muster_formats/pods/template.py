"""A Kubernetes PodTemplateSpec -> ``Template``: what is counted and where it may stand, with the template itself kept for Kubernetes.

The container that decides the replica's status gives the image, command and environment; all containers count for the resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from muster_core.models import Port, Resources, Template
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.pods.keys import (
    TAKEN_OUT,
    ContainerKeys,
    PodAffinityKeys,
    PodKeys,
    TemplateKeys,
    TemplateMetadataKeys,
)
from muster_formats.pods.kubeshare import Share, read_share
from muster_formats.pods.peer_keys import check_peers, check_spreads
from muster_formats.pods.resource_lists import Claim, add_up, read_claim
from muster_formats.pods.scheduling_keys import (
    PodPortKeys,
    read_node_affinity,
    read_ports,
    read_tolerations,
    read_variables,
)
from muster_formats.problems import shown
from muster_formats.table import Nested, Section
from muster_formats.yaml_builder import Json

_DEFAULT_GRACE_S = 30


@dataclass(frozen=True, kw_only=True)
class Main:
    """Which container decides: ``container`` by name, which must exist if ``required``, else the first; ``port`` is added if it is missing.

    ``kubeshare``: whether KubeShare's annotations ask for a share of a GPU. ``variables`` are given to the container that decides, where it
    has none of the name. ``table`` is what the template may hold.
    """

    container: str = ""
    required: bool = False
    port: Port | None = None
    kubeshare: bool = False
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    table: type[TemplateKeys] = TemplateKeys


def read_pod_template(cursor: Cursor, main: Main) -> Template:
    """Read a PodTemplateSpec; what is wrong or without effect is told."""
    template = Nested(main.table).read(cursor)
    if template is None:
        return Template()
    metadata, pod = template.get(main.table.metadata), template.get(main.table.spec)
    if pod is None:
        cursor.missing("spec", "a template has a spec with containers")
        return Template()
    annotations = (metadata.get(TemplateMetadataKeys.annotations) if metadata else None) or {}
    share = read_share(metadata, main.kubeshare) if metadata else Share()
    containers = _containers(pod, main)
    chosen = _chosen(containers, main)
    requests, limits = _resources(pod, containers, share)
    affinity = pod.get(PodKeys.affinity)
    if affinity:
        check_peers(affinity.get(PodAffinityKeys.beside))
        check_peers(affinity.get(PodAffinityKeys.apart))
    check_spreads(pod.get(PodKeys.spread))
    grace = pod.get(PodKeys.grace)
    variables, elsewhere = read_variables(chosen.get(ContainerKeys.env) if chosen else None)
    ports = read_ports(chosen.get(ContainerKeys.ports) if chosen else None)
    _warn_kubernetes_only(pod, containers, chosen, bool(elsewhere))
    variables = {**main.variables, **variables}
    if main.port and all(port.name != main.port.name for port in ports):
        ports = (*ports, main.port)
    return Template(
        image=(chosen.get(ContainerKeys.image) if chosen else None) or "",
        command=tuple((chosen.get(ContainerKeys.command) if chosen else None) or ()),
        args=tuple((chosen.get(ContainerKeys.args) if chosen else None) or ()),
        env=variables,
        working_dir=(chosen.get(ContainerKeys.working_dir) if chosen else None) or "",
        requests=requests,
        limits=limits,
        ports=ports,
        labels=(metadata.get(TemplateMetadataKeys.labels) if metadata else None) or {},
        annotations=annotations,
        node_selector=pod.get(PodKeys.node_selector) or {},
        tolerations=read_tolerations(pod.get(PodKeys.tolerations)),
        node_affinity=read_node_affinity(affinity.get(PodAffinityKeys.node) if affinity else None),
        grace_s=_DEFAULT_GRACE_S if grace is None else grace,
        pod=_kept(cursor, chosen, main),
    )


def _containers(pod: Section, main: Main) -> list[Section]:
    containers = pod.get(PodKeys.containers)
    if not containers:
        pod.cursor.missing("containers", "a template has at least one container", _name_advice(main))
        return []
    names: set[str] = set()
    for section in (*containers, *(pod.get(PodKeys.init_containers) or ())):
        name = section.get(ContainerKeys.name)
        if name is None:
            section.cursor.missing("name", "a container has a name", _name_advice(main))
        elif name in names:
            section.cursor.error(Code.DUPLICATE, f"two containers are named {name}", found=name)
        names.add(name or "")
        if not section.get(ContainerKeys.image):
            section.cursor.missing("image", "a container has an image")
        read_ports(section.get(ContainerKeys.ports))
        read_variables(section.get(ContainerKeys.env))
        section.get(ContainerKeys.command)
        section.get(ContainerKeys.args)
        section.get(ContainerKeys.working_dir)
    return containers


def _chosen(containers: list[Section], main: Main) -> Section | None:
    for section in containers:
        if main.container and section.get(ContainerKeys.name) == main.container:
            return section
    if main.required and containers:
        names = ", ".join(shown(section.get(ContainerKeys.name)) for section in containers)
        at = containers[0].at("name") or containers[0].cursor
        message = f"no container is named {main.container}, which decides how the replica has ended"
        at.error(Code.REQUIRED, message, found=names, allowed=main.container, fix=_name_advice(main))
    return containers[0] if containers else None


def _name_advice(main: Main) -> str:
    return f"name the training container {main.container}" if main.container else ""


def _resources(pod: Section, containers: list[Section], share: Share) -> tuple[Resources, Resources]:
    mains = [read_claim(section.get(ContainerKeys.resources)) for section in containers]
    inits = [
        read_claim(
            section.get(ContainerKeys.resources),
            sidecar=section.get(ContainerKeys.restart_policy) == "Always",
        )
        for section in pod.get(PodKeys.init_containers) or ()
    ]
    overhead = pod.get(PodKeys.overhead) or {}
    if whole := pod.get(PodKeys.resources):
        stated = read_claim(whole)
        mains = [_without(claim, stated) for claim in mains]
        inits = [_without(claim, stated) for claim in inits]
        mains.append(stated)
    requests, limits = add_up(mains, inits, overhead)
    if share.requests and requests.gpu and (cursor := pod.at("containers")):
        cursor.error(
            Code.CONFLICT,
            "whole GPUs and a share of one are both asked for",
            found="",
            fix="remove the GPUs from the resources, or KubeShare's annotations from the template",
        )
    return requests + share.as_requests(), limits + share.as_limits()


def _without(claim: Claim, stated: Claim) -> Claim:
    """A container's claim where the pod as a whole has stated its own amounts, which then count alone."""
    return Claim(
        {name: amount for name, amount in claim.requests.items() if name not in stated.requests},
        {name: amount for name, amount in claim.limits.items() if name not in stated.limits},
        claim.sidecar,
    )


def _warn_kubernetes_only(
    pod: Section, containers: list[Section], chosen: Section | None, elsewhere: bool
) -> None:
    keys = _kubernetes_only(pod)
    if chosen:
        keys += _kubernetes_only(chosen)
        for port in chosen.get(ContainerKeys.ports) or ():
            keys += [f"ports.{key}" for key in _kubernetes_only(port) if key != PodPortKeys.protocol.key]
        if resources := chosen.get(ContainerKeys.resources):
            keys += [f"resources.{key}" for key in _kubernetes_only(resources)]
    keys += ["env.valueFrom"] if elsewhere else []
    keys += ["further containers"] if len(containers) > 1 else []
    if keys:
        told = ", ".join(dict.fromkeys(keys))
        pod.cursor.problems.warn(
            Code.KUBERNETES_ONLY,
            pod.cursor.spot,
            f"on Kubernetes only: {told}; replicas that run as processes do without",
            found=told,
        )


def _kubernetes_only(section: Section) -> list[str]:
    fields = section.table.fields()
    return [key for key in section.given_keys() if key in fields and fields[key].kubernetes]


def _kept(cursor: Cursor, chosen: Section | None, main: Main) -> dict[str, Json]:
    """The template as Kubernetes is to see it: without what Muster decides, with the framework's port and variables."""
    raw = cast("dict[str, Json]", cursor.node.plain())
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return raw
    for key in TAKEN_OUT:
        spec.pop(key, None)
    if isinstance(metadata := raw.get("metadata"), dict):
        for key, field in TemplateMetadataKeys.fields().items():
            if field.idle:
                metadata.pop(key, None)
        if not metadata:
            del raw["metadata"]
    containers = spec.get("containers")
    name = chosen.get(ContainerKeys.name) if chosen else None
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict) and name and container.get("name") == name:
            if main.port:
                port: Json = {"name": main.port.name, "containerPort": main.port.number}
                _add(container, "ports", [port])
            _add(container, "env", [{"name": name, "value": value} for name, value in main.variables.items()])
    return raw


def _add(container: dict[str, Json], key: str, added: list[Json]) -> None:
    """Add to a list of named things those whose names it has not."""
    known = container.get(key) or []
    if not isinstance(known, list):
        return
    names = [one.get("name") for one in known if isinstance(one, dict)]
    missing = [one for one in added if isinstance(one, dict) and one.get("name") not in names]
    if missing:
        container[key] = [*missing, *known] if key == "env" else [*known, *missing]
