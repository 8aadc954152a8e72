"""Parameters of a Polyaxon 0.x document, checked against its declared inputs, and placeholders ``{{ name }}``.

There is no template engine: expressions, filters and statements are errors, so a document cannot make its reader compute. The
total text that is filled in is bounded, because a long value may be used many times.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor, nearest
from muster_formats.nodes import Json, YamlEntry, YamlNode
from muster_formats.polyaxon_v0.fields import IoType, V0InputFields, V0OpFields
from muster_formats.problems import shown
from muster_formats.schema import Section

MAX_FILLED = 1024 * 1024
"""How many characters placeholders may add to one document."""

_OPEN, _CLOSE, _STATEMENT = "{{", "}}", "{%"
_LONGEST = 200
_PATH = re.compile(r"([A-Za-z_][\w-]*)((?:\.[\w-]+|\[[0-9]{1,6}\])*)", re.ASCII)
_STEP = re.compile(r"\.([\w-]+)|\[([0-9]+)\]", re.ASCII)


class Placeholders:
    """The declared values of one document by name, and the characters that may still be added."""

    def __init__(self, values: Mapping[str, YamlNode]) -> None:
        self._values = values
        self._left = MAX_FILLED
        self._texts: dict[str, str] = {}

    def fill(self, cursor: Cursor) -> Cursor:
        """Return the cursor with its placeholders replaced; a string that is one placeholder becomes the value itself, number or list.

        An unknown name or an expression is an error, and its string counts as not given.
        """
        return dataclasses.replace(cursor, node=self._filled(cursor))

    def _filled(self, cursor: Cursor) -> YamlNode:
        node = cursor.node
        match node.value:
            case dict():
                children = {key: self._filled(child) for key, child in cursor.items().items()}
                if all(children[key] is entry.node for key, entry in node.value.items()):
                    return node
                entries = {
                    key: YamlEntry(entry.line, entry.column, children[key])
                    for key, entry in node.value.items()
                }
                return dataclasses.replace(node, value=entries)
            case list():
                elements = [self._filled(child) for child in cursor.elements()]
                same = all(one is other for one, other in zip(elements, node.value, strict=True))
                return node if same else dataclasses.replace(node, value=elements)
            case str():
                return self._text(cursor, node.value)
            case _:
                return node

    def _text(self, cursor: Cursor, text: str) -> YamlNode:
        node = cursor.node
        if _STATEMENT in text:
            cursor.error(
                Code.UNSUPPORTED,
                "statements in {% %} are not supported",
                fix="write the values themselves, or {{ name }}",
            )
            return _null(node)
        parts: list[str] = []
        at = 0
        while (start := text.find(_OPEN, at)) >= 0:
            end = text.find(_CLOSE, start + 2)
            if end < 0:
                cursor.error(Code.UNSUPPORTED, "the placeholder is not closed", fix="add }} after the name")
                return _null(node)
            name = text[start + 2 : end].strip()
            found = self._lookup(cursor, name)
            if found is None:
                return _null(node)
            if not text[:start].strip() and not text[end + 2 :].strip():
                return self._whole(cursor, found)
            rendered = self._texts.setdefault(name, str(found.plain()))
            if not self._reserve(cursor, len(rendered)):
                return _null(node)
            parts += [text[at:start], rendered]
            at = end + 2
        if not parts:
            return node
        filled = "".join((*parts, text[at:]))
        return dataclasses.replace(node, value=filled, text=filled, weight=len(filled))

    def _whole(self, cursor: Cursor, found: YamlNode) -> YamlNode:
        if not self._reserve(cursor, found.size + found.weight):
            return _null(cursor.node)
        return dataclasses.replace(found, line=cursor.node.line, column=cursor.node.column)

    def _lookup(self, cursor: Cursor, name: str) -> YamlNode | None:
        path = _PATH.fullmatch(name) if len(name) <= _LONGEST else None
        if path is None:
            cursor.error(
                Code.UNSUPPORTED,
                "a placeholder must be a name; expressions are not supported",
                found=shown(name),
                allowed="{{ name }}, {{ name.part }}, {{ name[0] }}",
                fix="declare the value under a name of its own",
            )
            return None
        node = self._values.get(path[1])
        if node is None:
            near = nearest(path[1], self._values)
            cursor.error(
                Code.NOT_ALLOWED,
                f"there is no parameter {shown(path[1])}",
                found=shown(path[1]),
                allowed=", ".join(sorted(self._values)) or "none is declared",
                fix=f"did you mean {near}?" if near else "declare it",
            )
            return None
        for step in _STEP.finditer(path[2]):
            node = _below(node, step[1], step[2])
            if node is None:
                cursor.error(Code.NOT_ALLOWED, f"there is no value {shown(name)}", found=shown(name))
                return None
        return node

    def _reserve(self, cursor: Cursor, count: int) -> bool:
        self._left -= count
        if self._left < 0:
            message = "the placeholders add too much text"
            cursor.error(
                Code.TOO_LARGE, message, found="", allowed=f"at most {MAX_FILLED // 1024} Ki characters"
            )
        return self._left >= 0


def _below(node: YamlNode, key: str | None, index: str | None) -> YamlNode | None:
    if isinstance(node.value, dict) and key is not None:
        entry = node.value.get(key)
        return entry.node if entry else None
    if isinstance(node.value, list) and index is not None and int(index) < len(node.value):
        return node.value[int(index)]
    return None


def _null(node: YamlNode) -> YamlNode:
    return YamlNode(value=None, line=node.line, column=node.column)


@dataclass(frozen=True)
class Params:
    """Parameters by name: the values of placeholders, and the ``values`` that the program receives."""

    nodes: dict[str, YamlNode]
    values: dict[str, Json]


def read_params(document: Section) -> Params:
    """Read ``params`` (or ``declarations``) and apply the defaults of ``inputs``."""
    given = _given(document)
    tuned = _tuned(document)
    nodes = {name: YamlNode(None, 0, 0) for name in tuned} | {
        name: cursor.node for name, cursor in given.items()
    }
    values: dict[str, Json] = {name: cursor.node.plain() for name, cursor in given.items()}
    declared: set[str] = set()
    for section in document.get(V0OpFields.inputs) or ():
        name = section.get(V0InputFields.name)
        if name is None:
            section.cursor.missing("name", "an input needs a name")
            continue
        if name in declared:
            section.cursor.error(Code.DUPLICATE, f"the input {shown(name)} is repeated", found=shown(name))
        declared.add(name)
        cursor = given.get(name) or section.at("default")
        if cursor is None:
            if not section.get(V0InputFields.is_optional) and name not in tuned:
                words = f"the input {shown(name)} has neither a parameter nor a default"
                section.cursor.error(
                    Code.REQUIRED, words, found="", fix=f"add params: {{{shown(name)}: ...}}"
                )
            continue
        _check(name, cursor, section)
        values[name] = cursor.node.plain()
        nodes[name] = _flag(name, cursor.node) if section.get(V0InputFields.is_flag) else cursor.node
    return Params(nodes, values)


def _tuned(document: Section) -> set[str]:
    """Return the parameters that a search would set, so that only the search is reported and not their absence."""
    names: set[str] = set()
    for field in (V0OpFields.hptuning, V0OpFields.settings):
        at = document.at(field.key)
        matrix = at.items().get(V0OpFields.matrix.key) if at else None
        names |= set(matrix.items()) if matrix else set()
    at = document.at(V0OpFields.matrix.key)
    return names | set(at.items()) if at else names


def _given(document: Section) -> dict[str, Cursor]:
    params, declarations = document.at("params"), document.at("declarations")
    if params and declarations:
        words = "params and declarations are the same"
        declarations.error(Code.CONFLICT, words, found="", fix="remove one of the two")
    document.get(V0OpFields.params)
    document.get(V0OpFields.declarations)
    given = params or declarations
    found = given.items() if given else {}
    for cursor in found.values():
        _report_references(cursor)
    return found


def _report_references(cursor: Cursor) -> None:
    if isinstance(cursor.node.value, str) and "{{" in cursor.node.value:
        cursor.error(
            Code.UNSUPPORTED,
            "a parameter must be a value: references to other runs belong to an experiment manager",
            fix="write the value itself",
        )
    for below in (*cursor.items().values(), *cursor.elements()):
        _report_references(below)


def _check(name: str, cursor: Cursor, section: Section) -> None:
    sort = section.get(V0InputFields.type)
    value = cursor.node.plain()
    many = section.get(V0InputFields.is_list)
    if many and not isinstance(value, list):
        cursor.wrong_type("a list")
        return
    if sort in _CHECKS:
        words, fits = _CHECKS[sort]
        for one in cursor.elements() if many else [cursor]:
            if not fits(one.node.plain()):
                one.wrong_type(words)
    options = section.at("options")
    if options and section.get(V0InputFields.options) is not None:
        allowed = [element.node.plain() for element in options.elements()]
        if value not in allowed:
            words = f"{shown(name)} must be one of its options"
            listed = ", ".join(shown(one) for one in allowed)
            cursor.error(Code.NOT_ALLOWED, words, allowed=listed)


def _flag(name: str, node: YamlNode) -> YamlNode:
    text = f"--{name}" if node.value is True else ""
    return dataclasses.replace(node, value=text, text=text) if isinstance(node.value, bool) else node


def _is_int(value: Json) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_CHECKS: dict[IoType | None, tuple[str, Callable[[Json], bool]]] = {
    IoType.INT: ("a whole number", _is_int),
    IoType.FLOAT: ("a number", _is_number),
    IoType.STR: ("a text", lambda value: not isinstance(value, list | dict)),
    IoType.BOOL: ("true or false", lambda value: isinstance(value, bool)),
    IoType.DICT: ("a mapping", lambda value: isinstance(value, dict)),
    IoType.LIST: ("a list", lambda value: isinstance(value, list)),
}
