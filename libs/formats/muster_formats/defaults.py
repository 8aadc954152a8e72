"""Platform defaults by category: node selector, tolerations and node affinity of jobs that set none.

They are read from Polyaxon's ``polyaxon_config.yml`` (source: the reference of Polyaxon's chart, versions 0.1 to 0.6) or from a native
document of ``kind: Defaults``, and are the last step of a field's fallback, after the replica and its role.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from muster_core.models import AppliedDefaults, Category, Job, JobKind, Problem, Role, Template, Toleration
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor, nearest
from muster_formats.field_types import AnyValue, Choice
from muster_formats.names import NameRule
from muster_formats.native import API_VERSION, ApiVersion
from muster_formats.nodes import JsonObject
from muster_formats.pods import (
    LABELS,
    NODE_AFFINITY,
    TOLERATIONS,
    AffinityFields,
    read_node_affinity,
    read_tolerations,
    write_toleration,
)
from muster_formats.problems import Problems, shown
from muster_formats.schema import Field, Nested, Section, Table, ignored
from muster_formats.source import read_source, yaml_text

KIND = "Defaults"

_DEPLOYMENT = "it configures the deployment, whose values are in the deploy tree"
_TENSORBOARDS = "tensorboards get the defaults of jobs"
_ANY_KEY = NameRule("a key", r"[\s\S]*", 1024, "any characters")
_CONFIG_KEYS = ("nodeSelectors", "tolerations", "affinity")
_ALLOWED = (
    f"{', '.join(_CONFIG_KEYS)}, as in polyaxon_config.yml, or apiVersion: {API_VERSION} with kind: {KIND}"
)
_CATEGORY_OF_KIND = {
    JobKind.BATCH: Category.EXPERIMENTS,
    JobKind.SERVICE: Category.JOBS,
    JobKind.BUILD: Category.BUILDS,
}
_DEFAULTED = ("node_selector", "tolerations", "node_affinity")


class CategoryDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The defaults of one category; ``node_affinity`` is a raw Kubernetes NodeAffinity."""

    node_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()
    node_affinity: dict[str, Any] = {}


class PlatformDefaults(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The defaults of every category."""

    experiments: CategoryDefaults = CategoryDefaults()
    jobs: CategoryDefaults = CategoryDefaults()
    builds: CategoryDefaults = CategoryDefaults()

    def of(self, category: Category) -> CategoryDefaults:
        """Return the defaults of one category."""
        by_category = {
            Category.EXPERIMENTS: self.experiments,
            Category.JOBS: self.jobs,
            Category.BUILDS: self.builds,
        }
        return by_category[category]


class ParsedDefaults(msgspec.Struct, frozen=True):
    """The result of reading defaults: ``None`` if there is an error; problems are errors, then warnings."""

    defaults: PlatformDefaults | None
    problems: tuple[Problem, ...]


class _DefaultsKind(enum.StrEnum):
    DEFAULTS = KIND


class _OtherCategoryFields(Table):
    """Categories of the platform itself, and tensorboards."""

    core = ignored("core", "The platform.", _DEPLOYMENT)
    dependencies = ignored("dependencies", "Dependencies of the platform.", _DEPLOYMENT)
    daemon = ignored("resourcesDaemon", "The platform's daemon.", _DEPLOYMENT)
    tensorboards = ignored("tensorboards", "Tensorboards.", _TENSORBOARDS)


class NodeSelectorsFields(_OtherCategoryFields):
    """``nodeSelectors``."""

    experiments = Field("experiments", LABELS, "Node labels for experiments.")
    jobs = Field("jobs", LABELS, "Node labels for jobs, notebooks and tensorboards.")
    builds = Field("builds", LABELS, "Node labels for builds.")


class TolerationsFields(_OtherCategoryFields):
    """``tolerations``."""

    experiments = Field("experiments", TOLERATIONS, "Taints that experiments tolerate.")
    jobs = Field("jobs", TOLERATIONS, "Taints that jobs, notebooks and tensorboards tolerate.")
    builds = Field("builds", TOLERATIONS, "Taints that builds tolerate.")


class AffinitiesFields(_OtherCategoryFields):
    """``affinity``."""

    experiments = Field("experiments", Nested(AffinityFields), "Affinity of experiments.")
    jobs = Field("jobs", Nested(AffinityFields), "Affinity of jobs, notebooks and tensorboards.")
    builds = Field("builds", Nested(AffinityFields), "Affinity of builds.")


class PolyaxonConfigFields(Table):
    """``polyaxon_config.yml``; all other fields configure the deployment."""

    others = (_ANY_KEY, AnyValue())
    node_selectors = Field("nodeSelectors", Nested(NodeSelectorsFields), "Node labels by category.")
    node_selector = Field("nodeSelector", Nested(NodeSelectorsFields), "Older name of nodeSelectors.")
    tolerations = Field("tolerations", Nested(TolerationsFields), "Tolerations by category.")
    affinity = Field("affinity", Nested(AffinitiesFields), "Affinities by category.")
    postgresql = ignored("postgresql", "The platform's database.", _DEPLOYMENT)
    rabbitmq = ignored("rabbitmq", "The platform's message broker.", _DEPLOYMENT)
    redis = ignored("redis", "The platform's cache.", _DEPLOYMENT)


class CategoryFields(Table):
    """The defaults of one category in a native document."""

    node_selector = Field("nodeSelector", LABELS, "Labels that a node must have.")
    tolerations = Field("tolerations", TOLERATIONS, "Tolerated taints.")
    node_affinity = Field("nodeAffinity", NODE_AFFINITY, "A Kubernetes NodeAffinity.")


class DefaultsSpecFields(Table):
    """``spec`` of a native document."""

    experiments = Field("experiments", Nested(CategoryFields), "Batch jobs without another category.")
    jobs = Field("jobs", Nested(CategoryFields), "Services without another category.")
    builds = Field("builds", Nested(CategoryFields), "Builds.")


class DefaultsFields(Table):
    """A native document."""

    required = ("apiVersion", "kind", "spec")
    api_version = Field("apiVersion", Choice(ApiVersion), "Version of the format.")
    kind = Field("kind", Choice(_DefaultsKind), "Kind of the document.")
    metadata = ignored("metadata", "Name.", "there is one set of defaults, which has no name")
    spec = Field("spec", Nested(DefaultsSpecFields), "Defaults by category.")


_CATEGORIES = (
    (NodeSelectorsFields.experiments, TolerationsFields.experiments, AffinitiesFields.experiments),
    (NodeSelectorsFields.jobs, TolerationsFields.jobs, AffinitiesFields.jobs),
    (NodeSelectorsFields.builds, TolerationsFields.builds, AffinitiesFields.builds),
)


def category_of(job: Job) -> Category:
    """Return the category of a job, by default its kind's."""
    return job.category or _CATEGORY_OF_KIND[job.kind]


def apply_defaults(job: Job, defaults: PlatformDefaults, version: int) -> Job:
    """Replace every empty field of every template by the default of the job's category.

    Fields are replaced as a whole and never merged, so a job that sets one label or tolerates one taint has exactly that. Applying the same
    defaults again changes nothing.

    Args:
        job: The job.
        defaults: The defaults.
        version: Their version, which ``Job.defaults`` records together with the replaced fields.
    """
    category = category_of(job)
    own = defaults.of(category)
    replaced: list[str] = []
    roles = tuple(_apply_to_role(role, own, replaced) for role in job.roles)
    before = job.defaults
    known = before.fields if before and (before.category, before.version) == (category, version) else ()
    applied = AppliedDefaults(category=category, version=version, fields=(*known, *replaced))
    return msgspec.structs.replace(job, roles=roles, defaults=applied)


def _apply_to_role(role: Role, own: CategoryDefaults, replaced: list[str]) -> Role:
    template = _apply_to_template(role.template, own, role.name, replaced)
    overrides = {
        index: _apply_to_template(override, own, f"{role.name}[{index}]", replaced)
        for index, override in role.overrides.items()
    }
    return msgspec.structs.replace(role, template=template, overrides=overrides)


def _apply_to_template(template: Template, own: CategoryDefaults, path: str, replaced: list[str]) -> Template:
    changes: dict[str, Any] = {
        field: getattr(own, field)
        for field in _DEFAULTED
        if getattr(own, field) and not getattr(template, field)
    }
    if not changes:
        return template
    replaced += [f"{path}.{field}" for field in changes]
    if template.pod:
        changes["pod"] = _apply_to_pod(template.pod, changes)
    return msgspec.structs.replace(template, **changes)


def _apply_to_pod(pod: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The raw template, which Kubernetes runs, with the same changes."""
    spec: dict[str, Any] = dict(pod.get("spec") or {})
    if "node_selector" in changes:
        spec["nodeSelector"] = dict(changes["node_selector"])
    if "tolerations" in changes:
        spec["tolerations"] = [write_toleration(toleration) for toleration in changes["tolerations"]]
    if "node_affinity" in changes:
        spec["affinity"] = {**(spec.get("affinity") or {}), "nodeAffinity": changes["node_affinity"]}
    return {**pod, "spec": spec}


def parse_defaults(document: str | bytes) -> ParsedDefaults:
    """Read platform defaults from YAML or JSON. Never raises, whatever the document."""
    problems = Problems()
    parts = read_source(document, problems).parts
    if len(parts) > 1:
        cursor = Cursor(parts[1], "", problems)
        cursor.error(Code.CONFLICT, "there is only one set of defaults", found="", fix="remove this part")
    defaults = _read(Cursor(parts[0], "", problems)) if parts else None
    return ParsedDefaults(None if problems.has_errors else defaults, problems.ordered())


def _read(document: Cursor) -> PlatformDefaults | None:
    fix = f"write {_ALLOWED}"
    if not isinstance(document.node.value, dict):
        document.wrong_type("a mapping", fix)
        return None
    keys = document.items()
    if "apiVersion" in keys or "kind" in keys:
        return _read_native(document)
    if not any(key in PolyaxonConfigFields.fields() for key in keys):
        message = "the document has no platform defaults"
        document.error(Code.UNSUPPORTED_KIND, message, found="", allowed=_ALLOWED, fix=fix)
        return None
    return _read_polyaxon_config(document)


def _read_native(document: Cursor) -> PlatformDefaults | None:
    given = {key: cursor.node.text for key, cursor in document.items().items()}
    found = " ".join(given.get(key, "") for key in ("apiVersion", "kind")).strip()
    if found != f"{API_VERSION} {KIND}":
        document.problems.add(
            Code.UNSUPPORTED_KIND,
            document.key_location("kind" if given.get("apiVersion") == API_VERSION else "apiVersion"),
            f"{shown(found)} is not platform defaults",
            found=shown(found),
            allowed=_ALLOWED,
            fix=f"write apiVersion: {API_VERSION} and kind: {KIND}",
        )
        return None
    section = Section(document, DefaultsFields)
    spec = section.get(DefaultsFields.spec)
    if spec is None:
        document.missing("spec", "spec is missing", "add spec: {experiments: ...}")
        return None
    return PlatformDefaults(
        experiments=_read_category(spec.get(DefaultsSpecFields.experiments)),
        jobs=_read_category(spec.get(DefaultsSpecFields.jobs)),
        builds=_read_category(spec.get(DefaultsSpecFields.builds)),
    )


def _read_category(section: Section | None) -> CategoryDefaults:
    if section is None:
        return CategoryDefaults()
    return CategoryDefaults(
        node_selector=section.get(CategoryFields.node_selector) or {},
        tolerations=read_tolerations(section.get(CategoryFields.tolerations)),
        node_affinity=read_node_affinity(section.get(CategoryFields.node_affinity)),
    )


def _read_polyaxon_config(document: Cursor) -> PlatformDefaults:
    section = Section(document, PolyaxonConfigFields)
    for key, cursor in section.extras().items():
        near = nearest(key, _CONFIG_KEYS)
        cursor.warn_ignored(shown(key), _DEPLOYMENT, fix=f"did you mean {near}?" if near else "")
    selectors = section.get_misspelt(PolyaxonConfigFields.node_selectors, PolyaxonConfigFields.node_selector)
    tolerations = section.get(PolyaxonConfigFields.tolerations)
    affinities = section.get(PolyaxonConfigFields.affinity)
    experiments, jobs, builds = (
        CategoryDefaults(
            node_selector=(selectors.get(selector) if selectors else None) or {},
            tolerations=read_tolerations(tolerations.get(toleration) if tolerations else None),
            node_affinity=_node_affinity(affinities.get(affinity) if affinities else None),
        )
        for selector, toleration, affinity in _CATEGORIES
    )
    return PlatformDefaults(experiments=experiments, jobs=jobs, builds=builds)


def _node_affinity(section: Section | None) -> JsonObject:
    return read_node_affinity(section.get(AffinityFields.node)) if section else {}


def to_native_defaults(defaults: PlatformDefaults) -> JsonObject:
    """Return the native document of the defaults as JSON; empty categories and fields are left out."""
    spec: JsonObject = {}
    for category in Category:
        if fields := _category_document(defaults.of(category)):
            spec[category.value] = fields
    return {"apiVersion": API_VERSION, "kind": KIND, "spec": spec}


def defaults_text(defaults: PlatformDefaults) -> str:
    """Return the native document of the defaults as YAML."""
    return yaml_text([to_native_defaults(defaults)])


def defaults_schema() -> JsonObject:
    """Return the JSON Schema of the native document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster defaults",
        "description": "Placement of jobs that do not set it themselves, by category.",
        **Nested(DefaultsFields).schema(),
    }


def _category_document(own: CategoryDefaults) -> JsonObject:
    fields: JsonObject = {
        "nodeSelector": dict(own.node_selector),
        "tolerations": [write_toleration(toleration) for toleration in own.tolerations],
        "nodeAffinity": own.node_affinity,
    }
    return {key: value for key, value in fields.items() if value}
