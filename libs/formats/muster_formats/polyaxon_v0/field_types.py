"""Field types of Polyaxon 0.x only: commands, pairs of variables, references to cluster objects."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.field_types import ListOf, LooseString, String
from muster_formats.names import VARIABLE, JsonObject, NameRule
from muster_formats.problems import shown
from muster_formats.schema import Field, Nested, Table

_CONTINUED = re.compile(r" ?\\[ \t]+")

_OBJECT = NameRule(
    "a name",
    r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*",
    253,
    "lower-case letters, digits, hyphens and dots, a letter or digit first and last",
    lower_case=True,
)
_KEY = NameRule("a key", r"[-._A-Za-z0-9]+", 253, "letters, digits, '-', '_' and '.'")


@dataclass(frozen=True)
class Commands:
    """A shell command line, or a list of them that run in order while they succeed."""

    title = "string | []string"

    def read(self, cursor: Cursor) -> str | None:
        """Return one shell line, or None if the command is empty."""
        if isinstance(cursor.node.value, list):
            lines = ListOf(String()).read(cursor) or []
            locations = cursor.elements()
        else:
            line = String().read(cursor)
            lines, locations = [] if line is None else [line], [cursor]
        for place in locations:
            _warn_of_lines(place)
        given = [_one_line(line) for line in lines]
        return " && ".join(line for line in given if line) or None

    def schema(self) -> JsonObject:
        """Return the JSON Schema: a text or a list of texts."""
        return {"anyOf": [String().schema(), ListOf(String()).schema()]}


@dataclass(frozen=True)
class Pairs:
    """Variables as a list of name-value pairs."""

    title = "[][name, value]"

    def read(self, cursor: Cursor) -> dict[str, str] | None:
        """Return the variables by name; a repeated name is a problem."""
        if not isinstance(cursor.node.value, list):
            cursor.wrong_type("a list of pairs", "write [[NAME, value], [NAME, value]]")
            return None
        variables: dict[str, str] = {}
        for pair in cursor.elements():
            parts = pair.elements()
            if len(parts) != 2:
                pair.wrong_type("a name-value pair", "write [NAME, value]")
                continue
            name, value = String(VARIABLE).read(parts[0]), LooseString().read(parts[1])
            if name in variables:
                parts[0].error(Code.DUPLICATE, f"{shown(name)} is repeated", fix="remove one of the two")
            elif name is not None and value is not None:
                variables[name] = value
        return variables

    def schema(self) -> JsonObject:
        """Return the JSON Schema: a list of pairs."""
        pair: JsonObject = {
            "type": "array",
            "prefixItems": [String(VARIABLE).schema(), LooseString().schema()],
            "minItems": 2,
            "maxItems": 2,
        }
        return {"type": "array", "items": pair}


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A secret, config map or volume by name; a secret or config map with its mount path and keys."""

    name: str
    mount_path: str = ""
    items: tuple[str, ...] = ()


class V0ObjectFields(Table):
    """A full reference to a secret or a config map."""

    required = ("name",)
    name = Field("name", String(_OBJECT), "Which.")
    mount_path = Field("mount_path", String(), "The mount path; default: as variables.", kubernetes=True)
    items = Field("items", ListOf(String(_KEY)), "The keys; default all.", kubernetes=True)


class V0VolumeFields(Table):
    """A full reference to a volume."""

    required = ("name",)
    name = Field("name", String(_OBJECT), "Which claim.")
    init = Field(
        "init", LooseString(), "Whether its folders are created.", ignored="the program creates its folders"
    )
    manage = Field(
        "manage",
        LooseString(),
        "Whether runs are kept apart in it.",
        ignored="the program creates its folders",
    )
    paths = Field("paths", ListOf(String()), "The parts to mount.", ignored="the whole volume is mounted")


@dataclass(frozen=True)
class References:
    """A list of names, or of full references by ``table``."""

    title = "[]string | []object"
    table: type[V0ObjectFields | V0VolumeFields]

    def read(self, cursor: Cursor) -> tuple[Reference, ...] | None:
        """Return the references."""
        if not isinstance(cursor.node.value, list):
            cursor.wrong_type("a list", "write - before each element, or use [ ]")
            return None
        found = [self._read(element) for element in cursor.elements()]
        return tuple(reference for reference in found if reference)

    def schema(self) -> JsonObject:
        """Return the JSON Schema: a list of names or references."""
        return {"type": "array", "items": {"anyOf": [String(_OBJECT).schema(), Nested(self.table).schema()]}}

    def _read(self, cursor: Cursor) -> Reference | None:
        if not isinstance(cursor.node.value, dict):
            name = String(_OBJECT).read(cursor)
            return None if name is None else Reference(name=name)
        section = Nested(self.table).read(cursor)
        name = section.get(self.table.name) if section else None
        if section is None or name is None:
            cursor.missing("name", "a reference needs a name")
            return None
        if self.table is not V0ObjectFields:
            return Reference(name=name)
        return Reference(
            name=name,
            mount_path=section.get(V0ObjectFields.mount_path) or "",
            items=tuple(section.get(V0ObjectFields.items) or ()),
        )


def _one_line(text: str) -> str:
    """Join the lines of a command and drop continuation backslashes, as Polyaxon does."""
    lines = (line.strip().removesuffix("\\").rstrip() for line in text.splitlines())
    return _CONTINUED.sub(" ", " ".join(line for line in lines if line)).strip()


def _warn_of_lines(cursor: Cursor) -> None:
    lines = [line.rstrip() for line in cursor.node.text.strip().splitlines()]
    if any(line and not line.endswith("\\") for line in lines[:-1]):
        why = "Polyaxon joins the lines of a command with spaces"
        fix = "if they are separate commands, write cmd as a list, which is joined with &&"
        cursor.warn_ignored("a line break", why, fix=fix)
