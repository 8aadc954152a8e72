"""Parameters of a Polyaxon 0.x document, checked against its declared inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from muster_core.models.problem_codes import Code
from muster_formats.cursor import Cursor
from muster_formats.nodes import Json, YamlNode
from muster_formats.polyaxon_v0.keys import InputKeys, IoType, OpKeys
from muster_formats.problems import shown
from muster_formats.schema import Section


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
    told: set[str] = set()
    for section in document.get(OpKeys.inputs) or ():
        name = section.get(InputKeys.name)
        if name is None:
            section.cursor.missing("name", "an input needs a name")
            continue
        if name in told:
            section.cursor.error(Code.DUPLICATE, f"the input {shown(name)} is repeated", found=shown(name))
        told.add(name)
        cursor = given.get(name) or section.at("default")
        if cursor is None:
            if not section.get(InputKeys.is_optional) and name not in tuned:
                words = f"the input {shown(name)} has neither a parameter nor a default"
                section.cursor.error(
                    Code.REQUIRED, words, found="", fix=f"add params: {{{shown(name)}: ...}}"
                )
            continue
        _check(name, cursor, section)
        values[name] = cursor.node.plain()
        nodes[name] = _flag(name, cursor.node) if section.get(InputKeys.is_flag) else cursor.node
    return Params(nodes, values)


def _tuned(document: Section) -> set[str]:
    """Return the parameters that a search would set, so that only the search is reported and not their absence."""
    names: set[str] = set()
    for field in (OpKeys.hptuning, OpKeys.settings):
        at = document.at(field.key)
        matrix = at.items().get(OpKeys.matrix.key) if at else None
        names |= set(matrix.items()) if matrix else set()
    at = document.at(OpKeys.matrix.key)
    return names | set(at.items()) if at else names


def _given(document: Section) -> dict[str, Cursor]:
    params, declarations = document.at("params"), document.at("declarations")
    if params and declarations:
        words = "params and declarations are the same"
        declarations.error(Code.CONFLICT, words, found="", fix="remove one of the two")
    document.get(OpKeys.params)
    document.get(OpKeys.declarations)
    given = params or declarations
    found = given.items() if given else {}
    for cursor in found.values():
        _refuse_references(cursor)
    return found


def _refuse_references(cursor: Cursor) -> None:
    if isinstance(cursor.node.value, str) and "{{" in cursor.node.value:
        cursor.error(
            Code.UNSUPPORTED,
            "a parameter must be a value: references to other runs belong to an experiment manager",
            fix="write the value itself",
        )
    for below in (*cursor.items().values(), *cursor.elements()):
        _refuse_references(below)


def _check(name: str, cursor: Cursor, section: Section) -> None:
    sort = section.get(InputKeys.type)
    value = cursor.node.plain()
    many = section.get(InputKeys.is_list)
    if many and not isinstance(value, list):
        cursor.wrong_type("a list")
        return
    if sort in _CHECKS:
        words, fits = _CHECKS[sort]
        for one in cursor.elements() if many else [cursor]:
            if not fits(one.node.plain()):
                one.wrong_type(words)
    options = section.at("options")
    if options and section.get(InputKeys.options) is not None:
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
