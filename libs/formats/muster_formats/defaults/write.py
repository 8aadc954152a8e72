"""The platform's defaults -> the native form, and what that form looks like."""

from __future__ import annotations

from muster_core.models import Category
from muster_formats.defaults.apply import to_kubernetes
from muster_formats.defaults.keys import KIND, DefaultsKeys
from muster_formats.defaults.model import CategoryDefaults, PlatformDefaults
from muster_formats.export.yaml_text import yaml_text
from muster_formats.names import Schema
from muster_formats.native.keys import API_VERSION
from muster_formats.table import Nested


def to_native_defaults(defaults: PlatformDefaults) -> Schema:
    """The native document of the defaults, as JSON; categories and fields that say nothing are left out."""
    spec: Schema = {}
    for category in Category:
        if said := _category(defaults.of(category)):
            spec[category.value] = said
    return {"apiVersion": API_VERSION, "kind": KIND, "spec": spec}


def defaults_text(defaults: PlatformDefaults) -> str:
    """The native document of the defaults, as YAML."""
    return yaml_text([to_native_defaults(defaults)])


def defaults_schema() -> Schema:
    """The JSON Schema of the native document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster defaults",
        "description": "Where jobs go that do not say it themselves, by category.",
        **Nested(DefaultsKeys).schema(),
    }


def _category(own: CategoryDefaults) -> Schema:
    said: Schema = {
        "nodeSelector": dict(own.node_selector),
        "tolerations": [to_kubernetes(toleration) for toleration in own.tolerations],
        "nodeAffinity": own.node_affinity,
    }
    return {key: value for key, value in said.items() if value}
