"""A Kubernetes PodTemplateSpec -> ``Template``: what is counted and where it may stand, with the template itself kept for Kubernetes.

The container that decides the replica's status gives the image, command and environment; all containers count for the resources.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from muster_core.dialects.codes import Code
from muster_core.dialects.cursor import Cursor, warn_idle
from muster_core.dialects.kubeshare import Share, read_share
from muster_core.dialects.pod_keys import (
    DROPPED,
    IDLE,
    AffinityKeys,
    ContainerKeys,
    PodKeys,
    TemplateKeys,
    TemplateMetadataKeys,
)
from muster_core.dialects.problems import shown
from muster_core.dialects.resource_lists import Claim, add_up, read_claim
from muster_core.dialects.scheduling_keys import (
    read_node_affinity,
    read_ports,
    read_tolerations,
    read_variables,
)
from muster_core.dialects.table import Nested, Section
from muster_core.dialects.yaml_builder import Json
from muster_core.models import Port, Resources, Template

_DEFAULT_GRACE_S = 30


@dataclass(frozen=True, kw_only=True)
class Main:
    """Which container decides: ``container`` by name, which must exist if ``required``, else the first; ``port`` is added if it is missing.

    ``kubeshare``: whether KubeShare's annotations ask for a share of a GPU.
    """

    container: str = ""
    required: bool = False
    port: Port | None = None
    kubeshare: bool = False


def read_pod_template(cursor: Cursor, main: Main) -> Template:
    """Read a PodTemplateSpec; what is wrong or without effect is told."""
    template = Nested(TemplateKeys).read(cursor)
    if template is None:
        return Template()
    metadata, pod = template.get(TemplateKeys.metadata), template.get(TemplateKeys.spec)
    if pod is None:
        cursor.missing("spec", "a template has a spec with containers")
        return Template()
    annotations = (metadata.get(TemplateMetadataKeys.annotations) if metadata else None) or {}
    share = read_share(metadata, main.kubeshare) if metadata else Share()
    containers = _containers(pod, main)
    chosen = _chosen(containers, main)
    requests, limits = _resources(pod, containers, share)
    affinity = pod.get(PodKeys.affinity)
    _warn(pod, affinity, metadata)
    grace = pod.get(PodKeys.grace)
    variables, elsewhere = read_variables(chosen.get(ContainerKeys.env) if chosen else None)
    ports = read_ports(chosen.get(ContainerKeys.ports) if chosen else None)
    _warn_kubernetes_only(pod, containers, chosen, bool(elsewhere))
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
        node_affinity=read_node_affinity(affinity.get(AffinityKeys.node) if affinity else None),
        grace_s=_DEFAULT_GRACE_S if grace is None else grace,
        pod=_kept(cursor, chosen, main.port),
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


def _warn(pod: Section, affinity: Section | None, metadata: Section | None) -> None:
    for key in metadata.given_keys() if metadata else ():
        if key in TemplateMetadataKeys.kept and metadata and (cursor := metadata.at(key)):
            warn_idle(cursor, key, "Muster names the replicas")
    for key, why in {**DROPPED, **IDLE}.items():
        if cursor := pod.at(key):
            warn_idle(cursor, key, why)
    for key in ("podAffinity", "podAntiAffinity"):
        if affinity and (cursor := affinity.at(key)):
            warn_idle(cursor, key, "only node affinity bounds where a replica is placed")


def _warn_kubernetes_only(
    pod: Section, containers: list[Section], chosen: Section | None, elsewhere: bool
) -> None:
    keys = [key for key in pod.given_keys() if key in PodKeys.kept and key not in DROPPED and key not in IDLE]
    keys += [key for key in (chosen.given_keys() if chosen else ()) if key in ContainerKeys.kept]
    keys += ["env.valueFrom"] if elsewhere else []
    keys += ["initContainers"] if pod.at("initContainers") else []
    keys += ["further containers"] if len(containers) > 1 else []
    if keys:
        pod.cursor.problems.warn(
            Code.KUBERNETES_ONLY,
            pod.cursor.spot,
            f"on Kubernetes only: {', '.join(keys)}; replicas that run as processes do without",
            found=", ".join(keys),
        )


def _kept(cursor: Cursor, chosen: Section | None, port: Port | None) -> dict[str, Json]:
    """The template as Kubernetes is to see it: without what Muster decides, with the framework's port."""
    raw = cast("dict[str, Json]", cursor.node.plain())
    spec = raw.get("spec")
    if not isinstance(spec, dict):
        return raw
    for key in DROPPED:
        spec.pop(key, None)
    containers = spec.get("containers")
    if port is None or chosen is None or not isinstance(containers, list):
        return raw
    for container in containers:
        if isinstance(container, dict) and container.get("name") == chosen.get(ContainerKeys.name):
            ports = container.get("ports") or []
            if isinstance(ports, list) and not any(
                isinstance(p, dict) and p.get("name") == port.name for p in ports
            ):
                container["ports"] = [*ports, {"name": port.name, "containerPort": port.number}]
    return raw
