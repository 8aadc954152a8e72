"""The platform's defaults: where jobs go that do not say it themselves, by category."""

from muster_formats.defaults.apply import apply_defaults, category_of
from muster_formats.defaults.model import CategoryDefaults, PlatformDefaults
from muster_formats.defaults.read import ParsedDefaults, parse_defaults
from muster_formats.defaults.write import defaults_schema, defaults_text, to_native_defaults

__all__ = [
    "CategoryDefaults",
    "ParsedDefaults",
    "PlatformDefaults",
    "apply_defaults",
    "category_of",
    "defaults_schema",
    "defaults_text",
    "parse_defaults",
    "to_native_defaults",
]
