"""Roles of the native form: counts, templates short and whole, and what single replicas do differently."""

from __future__ import annotations

from typing import TypeVar

from muster_core.models import Resources, RestartPolicy, Role, Template
from muster_core.models.problem_codes import Code
from muster_formats.kinds import Amount
from muster_formats.native.keys import AmountKeys, OverrideKeys, ResourceKeys, RoleKeys, TemplateKeys
from muster_formats.places import Place, Places
from muster_formats.pods.resource_lists import GPU_NAMES, Amounts, kind_of_resource, to_resources
from muster_formats.pods.scheduling_keys import read_node_affinity, read_ports, read_tolerations
from muster_formats.pods.template import Main, read_pod_template
from muster_formats.table import Section

_T = TypeVar("_T")


class RoleReader:
    """Reads the roles of one job, and notes where they stand."""

    def __init__(self, *, main: Main, places: Places, restart_policy: RestartPolicy) -> None:
        self._main = main
        self._restart_policy = restart_policy
        self._places = places

    def read(self, name: str, section: Section) -> Role:
        """Read one role."""
        replicas, low, high = (
            section.get(field) for field in (RoleKeys.replicas, RoleKeys.min, RoleKeys.max)
        )
        if replicas is None:
            replicas = 1 if low is None else low
        for field, said in (("replicas", True), ("min", low is not None), ("max", high is not None)):
            known_as = field if said else "replicas"
            self._places.note(Place(field, name), section.cursor.key_spot(known_as), known_as)
        for field in ("role", "template"):
            self._places.note(Place(field, name), section.cursor.spot)
        self._places.note(Place("resources", name), section.cursor.key_spot("resources"))
        template = self._template(section, Template())
        return Role(
            name=name,
            replicas=replicas,
            min=replicas if low is None else low,
            max=replicas if high is None else high,
            template=template,
            overrides=self._overrides(name, section, template),
            restart_policy=section.get(RoleKeys.restart_policy) or self._restart_policy,
        )

    def _overrides(self, name: str, section: Section, base: Template) -> dict[int, Template]:
        overrides: dict[int, Template] = {}
        for override in section.get(RoleKeys.overrides) or ():
            index = override.get(OverrideKeys.index)
            if index is None:
                override.cursor.missing("index", "an override says which replica it is for", "add index: 0")
                continue
            if index in overrides and (at := override.at("index")):
                at.error(Code.DUPLICATE, f"replica {index} is overridden twice", fix="put both into one")
            self._places.note(Place("overrides", name, index), override.cursor.key_spot("index"))
            self._places.note(Place("override", name, index), override.cursor.spot)
            self._places.note(Place("resources", name, index), override.cursor.key_spot("resources"))
            overrides[index] = self._template(override, base)
        return overrides

    def _template(self, section: Section, base: Template) -> Template:
        whole = section.get(TemplateKeys.template)
        if whole is not None:
            base = read_pod_template(whole, self._main) if whole.items() else Template()
        return read_short(section, base)


def read_short(section: Section, base: Template) -> Template:
    """Read the short form of a template; fields that are not given are those of ``base``."""
    command, args = section.get(TemplateKeys.command), section.get(TemplateKeys.args)
    ports, tolerations = section.get(TemplateKeys.ports), section.get(TemplateKeys.tolerations)
    affinity, resources = section.get(TemplateKeys.node_affinity), section.get(TemplateKeys.resources)
    requests, limits = (base.requests, base.limits) if resources is None else read_resources(resources)
    return Template(
        image=_given(section.get(TemplateKeys.image), base.image),
        command=base.command if command is None else tuple(command),
        args=base.args if args is None else tuple(args),
        env=_given(section.get(TemplateKeys.env), base.env),
        working_dir=_given(section.get(TemplateKeys.working_dir), base.working_dir),
        requests=requests,
        limits=limits,
        ports=base.ports if ports is None else read_ports(ports),
        labels=_given(section.get(TemplateKeys.labels), base.labels),
        annotations=_given(section.get(TemplateKeys.annotations), base.annotations),
        node_selector=_given(section.get(TemplateKeys.node_selector), base.node_selector),
        tolerations=base.tolerations if tolerations is None else read_tolerations(tolerations),
        node_affinity=base.node_affinity if affinity is None else read_node_affinity(affinity),
        grace_s=_given(section.get(TemplateKeys.grace_period), base.grace_s),
        pod=base.pod,
    )


def _given(value: _T | None, otherwise: _T) -> _T:
    return otherwise if value is None else value


def read_resources(section: Section) -> tuple[Resources, Resources]:
    """Requests and limits: amounts alone are requests; limits stand in for requests that are not given."""
    requests, limits = section.get(ResourceKeys.requests), section.get(ResourceKeys.limits)
    alone = read_amounts(section)
    if requests is None and limits is None:
        return to_resources(alone), Resources()
    if alone:
        fix = "put them under requests"
        section.cursor.error(
            Code.CONFLICT, "amounts stand beside requests or limits", found=", ".join(alone), fix=fix
        )
    asked, held = read_amounts(requests), read_amounts(limits)
    return to_resources({**held, **asked}), to_resources(held)


def read_amounts(section: Section | None, keys: type[AmountKeys] = AmountKeys) -> Amounts:
    """The amounts of a section by ``keys``, GPUs also by their Kubernetes names; those that are refused left out."""
    if section is None:
        return {}
    read = {
        "cpu": section.get(keys.cpu),
        "memory": section.get(keys.memory),
        "gpu": section.get(keys.gpu),
        "gpu_memory": section.get(keys.gpu_memory),
        "ephemeral_storage": section.get(keys.ephemeral_storage),
    }
    for key, cursor in section.extras().items():
        if key in GPU_NAMES:
            gpus = keys.gpu.kind.read(cursor)
            if read["gpu"] is not None:
                cursor.error(
                    Code.CONFLICT, "GPUs are asked for twice", found=key, fix="say it once, such as gpu: 2"
                )
            read["gpu"] = gpus
        elif keys.knows(key):
            _, parse, examples = kind_of_resource(key)
            read[key] = Amount(parse, examples).read(cursor)
    return {name: amount for name, amount in read.items() if amount is not None}
