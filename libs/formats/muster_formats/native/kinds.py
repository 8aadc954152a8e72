"""Kinds of value that only the native form has."""

from __future__ import annotations

from dataclasses import dataclass

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.kinds import Kind
from muster_formats.names import Schema
from muster_formats.pods.keys import TemplateKeys
from muster_formats.pods.scheduling_keys import VARIABLES, read_variables


@dataclass(frozen=True)
class Environment:
    """Variables: ``mapping`` of names to values, or a Kubernetes list of name and value."""

    mapping: Kind[dict[str, str]]

    def read(self, cursor: Cursor) -> dict[str, str] | None:
        """The variables; values from elsewhere need a whole template."""
        if not isinstance(cursor.node.value, list):
            return self.mapping.read(cursor)
        values, elsewhere = read_variables(VARIABLES.read(cursor))
        for source in elsewhere:
            words = "values from elsewhere need a whole template"
            source.error(Code.NOT_ALLOWED, words, fix="give the role a template instead of image and command")
        return values

    def schema(self) -> Schema:
        """Either form."""
        return {"anyOf": [self.mapping.schema(), VARIABLES.schema()]}


@dataclass(frozen=True)
class PodTemplate:
    """A PodTemplateSpec, read by whoever knows which container decides; ``table`` is what it may hold."""

    table: type[TemplateKeys] = TemplateKeys

    def read(self, cursor: Cursor) -> Cursor | None:
        """Its place."""
        if not isinstance(cursor.node.value, dict):
            cursor.wrong_type("a mapping")
            return None
        return cursor

    def schema(self) -> Schema:
        """An object; Kubernetes' own schema says the rest."""
        return {"type": "object"}
