"""The JSON Schema of the native form, for editors: made of the tables that the parser reads with."""

from __future__ import annotations

from muster_formats.names import Schema
from muster_formats.native.keys import JobKeys
from muster_formats.table import Nested


def native_schema() -> Schema:
    """The JSON Schema of a native document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Muster job",
        "description": "A job in Muster's native form.",
        **Nested(JobKeys).schema(),
    }
