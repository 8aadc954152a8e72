"""A document -> the platform's defaults: Polyaxon's configuration file as it is, or the native form."""

from __future__ import annotations

import msgspec

from muster_core.models import Problem
from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor, nearest, warn_idle
from muster_formats.defaults.keys import (
    DEPLOYED,
    KIND,
    AffinitiesKeys,
    CategoryKeys,
    ConfigKeys,
    DefaultsKeys,
    NodeSelectorsKeys,
    SpecKeys,
    TolerationsKeys,
)
from muster_formats.defaults.model import CategoryDefaults, PlatformDefaults
from muster_formats.native.keys import API_VERSION
from muster_formats.pods.keys import AffinityKeys
from muster_formats.pods.scheduling_keys import read_node_affinity, read_tolerations
from muster_formats.problems import Problems, shown
from muster_formats.spelling import read_spelt
from muster_formats.table import Section
from muster_formats.yaml_builder import Json
from muster_formats.yaml_source import read_source

_CONFIG = ("nodeSelectors", "tolerations", "affinity")
_CATEGORIES = (
    (NodeSelectorsKeys.experiments, TolerationsKeys.experiments, AffinitiesKeys.experiments),
    (NodeSelectorsKeys.jobs, TolerationsKeys.jobs, AffinitiesKeys.jobs),
    (NodeSelectorsKeys.builds, TolerationsKeys.builds, AffinitiesKeys.builds),
)
_ALLOWED = f"{', '.join(_CONFIG)}, as in polyaxon_config.yml, or apiVersion: {API_VERSION} with kind: {KIND}"


class ParsedDefaults(msgspec.Struct, frozen=True):
    """What a document means: the defaults, or ``None`` where there is an error; all problems, errors first, warnings among them."""

    defaults: PlatformDefaults | None
    problems: tuple[Problem, ...]


def parse_defaults(document: str | bytes) -> ParsedDefaults:
    """Read the platform's defaults from YAML or JSON. Never raises, whatever the document."""
    problems = Problems()
    parts = read_source(document, problems).parts
    if len(parts) > 1:
        cursor = Cursor(parts[1], "", problems)
        cursor.error(
            Code.CONFLICT, "there is one set of defaults, and this is a second", found="", fix="remove it"
        )
    defaults = _read(Cursor(parts[0], "", problems)) if parts else None
    return ParsedDefaults(None if problems.refused else defaults, problems.ordered())


def _read(document: Cursor) -> PlatformDefaults | None:
    if not isinstance(document.node.value, dict):
        document.wrong_type("a mapping", f"write {_ALLOWED}")
        return None
    keys = document.items()
    if "apiVersion" in keys or "kind" in keys:
        return _native(document)
    if not any(key in ConfigKeys.fields() for key in keys):
        document.error(
            Code.UNSUPPORTED_KIND,
            "this says no defaults",
            found="",
            allowed=_ALLOWED,
            fix=f"write {_ALLOWED}",
        )
        return None
    return _config(document)


def _native(document: Cursor) -> PlatformDefaults | None:
    said = {key: cursor.node.text for key, cursor in document.items().items()}
    found = " ".join(said.get(key, "") for key in ("apiVersion", "kind")).strip()
    if found != f"{API_VERSION} {KIND}":
        document.problems.add(
            Code.UNSUPPORTED_KIND,
            document.key_spot("kind" if said.get("apiVersion") == API_VERSION else "apiVersion"),
            f"{shown(found)} is no document of defaults",
            found=shown(found),
            allowed=_ALLOWED,
            fix=f"write apiVersion: {API_VERSION} and kind: {KIND}",
        )
        return None
    section = Section(document, DefaultsKeys)
    spec = section.get(DefaultsKeys.spec)
    if spec is None:
        document.missing("spec", "defaults have a spec, by category", "add spec: {experiments: ...}")
        return None
    return PlatformDefaults(
        experiments=_category(spec.get(SpecKeys.experiments)),
        jobs=_category(spec.get(SpecKeys.jobs)),
        builds=_category(spec.get(SpecKeys.builds)),
    )


def _category(section: Section | None) -> CategoryDefaults:
    if section is None:
        return CategoryDefaults()
    return CategoryDefaults(
        node_selector=section.get(CategoryKeys.node_selector) or {},
        tolerations=read_tolerations(section.get(CategoryKeys.tolerations)),
        node_affinity=read_node_affinity(section.get(CategoryKeys.node_affinity)),
    )


def _config(document: Cursor) -> PlatformDefaults:
    section = Section(document, ConfigKeys)
    for key, cursor in section.extras().items():
        near = nearest(key, _CONFIG)
        warn_idle(cursor, shown(key), DEPLOYED, fix=f"did you mean {near}?" if near else "")
    selectors = read_spelt(section, ConfigKeys.node_selectors, ConfigKeys.node_selector)
    tolerations, affinities = section.get(ConfigKeys.tolerations), section.get(ConfigKeys.affinity)
    experiments, jobs, builds = (
        CategoryDefaults(
            node_selector=(selectors.get(selector) if selectors else None) or {},
            tolerations=read_tolerations(tolerations.get(toleration) if tolerations else None),
            node_affinity=_node_affinity(affinities.get(affinity) if affinities else None),
        )
        for selector, toleration, affinity in _CATEGORIES
    )
    return PlatformDefaults(experiments=experiments, jobs=jobs, builds=builds)


def _node_affinity(section: Section | None) -> dict[str, Json]:
    return read_node_affinity(section.get(AffinityKeys.node)) if section else {}
