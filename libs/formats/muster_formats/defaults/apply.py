"""Filling in what a job does not say: the last step of a field's way, after the replica and its role.

A field that is empty is replaced as a whole. Nothing is merged, so that a job that names one label, or stands one taint, has exactly that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from muster_core.models import AppliedDefaults, Category, Job, JobKind, Role, Template, Toleration
from muster_formats.defaults.model import CategoryDefaults, PlatformDefaults

_CATEGORIES = {
    JobKind.BATCH: Category.EXPERIMENTS,
    JobKind.SERVICE: Category.JOBS,
    JobKind.BUILD: Category.BUILDS,
}
_FIELDS = ("node_selector", "tolerations", "node_affinity")


def category_of(job: Job) -> Category:
    """The category that a job says, or its kind's own."""
    return job.category or _CATEGORIES[job.kind]


def apply_defaults(job: Job, defaults: PlatformDefaults, version: int) -> Job:
    """The job with every empty field of every template replaced by the default of its category.

    ``Job.defaults`` says which ``version`` was in force and what it filled in. Applied again, the same defaults change nothing.
    """
    category = category_of(job)
    own = defaults.of(category)
    filled: list[str] = []
    roles = tuple(_role(role, own, filled) for role in job.roles)
    before = job.defaults
    known = before.fields if before and (before.category, before.version) == (category, version) else ()
    applied = AppliedDefaults(category=category, version=version, fields=(*known, *filled))
    return msgspec.structs.replace(job, roles=roles, defaults=applied)


def _role(role: Role, own: CategoryDefaults, filled: list[str]) -> Role:
    template = _template(role.template, own, role.name, filled)
    overrides = {
        index: _template(override, own, f"{role.name}[{index}]", filled)
        for index, override in role.overrides.items()
    }
    return msgspec.structs.replace(role, template=template, overrides=overrides)


def _template(template: Template, own: CategoryDefaults, path: str, filled: list[str]) -> Template:
    changes: dict[str, Any] = {
        field: getattr(own, field)
        for field in _FIELDS
        if getattr(own, field) and not getattr(template, field)
    }
    if not changes:
        return template
    filled += [f"{path}.{field}" for field in changes]
    if template.pod:
        changes["pod"] = _pod(template.pod, changes)
    return msgspec.structs.replace(template, **changes)


def _pod(pod: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The raw template with the same changes, since on Kubernetes it is what runs."""
    spec: dict[str, Any] = dict(pod.get("spec") or {})
    if "node_selector" in changes:
        spec["nodeSelector"] = dict(changes["node_selector"])
    if "tolerations" in changes:
        spec["tolerations"] = [to_kubernetes(toleration) for toleration in changes["tolerations"]]
    if "node_affinity" in changes:
        spec["affinity"] = {**(spec.get("affinity") or {}), "nodeAffinity": changes["node_affinity"]}
    return {**pod, "spec": spec}


def to_kubernetes(toleration: Toleration) -> dict[str, Any]:
    """A toleration in Kubernetes' words, what is empty left out."""
    said = {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
    return {key: value for key, value in said.items() if value}
