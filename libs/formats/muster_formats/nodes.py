"""Nodes: JSON values with source locations, built from YAML parser events within bounds on size and depth."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from muster_core.models.problem_codes import Code
from muster_formats.problems import Problems, SourceLocation, shown

MAX_DEPTH = 40
"""How deep mappings and lists may be nested."""

MAX_NODES = 40_000
"""How many keys and values a document may have, aliases expanded."""

MAX_CHARACTERS = 1024 * 1024
"""How many characters a document's keys and values may have, aliases expanded."""

MAX_KEY = 1024
"""The longest key, in characters."""

MAX_PARTS = 100
"""How many YAML parts a document may have."""

Scalar = str | int | float | bool | None
"""A JSON scalar."""

Json = Scalar | list["Json"] | dict[str, "Json"]
"""A JSON value."""

JsonObject = dict[str, Json]
"""A JSON object."""

_STR_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_MAP_TAG, _SEQ_TAG = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"
_MAX_DIGITS = 64
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)|[-+]?Infinity|NaN", re.ASCII)
_NUL = "the character U+0000 is not allowed in names, arguments and variables"


class NumberError(ValueError):
    """A number that JSON cannot represent."""


def resolve_scalar(text: str) -> Scalar:
    """Return the value of a plain (unquoted) YAML scalar: null, a boolean, a number or a string.

    Stricter than YAML 1.1: ``no``, ``010``, ``1:30`` and ``2024-01-01`` stay strings. JSON keeps its meaning.

    Raises:
        NumberError: For NaN, infinities and numbers of more than 64 digits.
    """
    if text in _NULL:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    if _NOT_FINITE.fullmatch(text):
        raise NumberError("a number must be finite")
    if not _FLOAT.fullmatch(text):
        return text
    if len(text) > _MAX_DIGITS:
        raise NumberError("a number must have at most 64 digits")
    if _INT.fullmatch(text):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise NumberError("a number must be finite")
    return number


class BoundExceeded(Exception):
    """A bound on the document's size is exceeded, so reading stops."""

    def __init__(self, code: Code, event: yaml.Event, message: str, allowed: str) -> None:
        super().__init__(message)
        self.code, self.message, self.allowed = code, message, allowed
        self.line, self.column = _position(event)


@dataclass(eq=False)
class YamlNode:
    """A value with its line and column, from 1; 0 if it comes from data instead of text.

    ``value`` is a scalar, a list of nodes, or a mapping of strings to ``YamlEntry``. ``text`` is a scalar as written in the document.
    ``size`` counts the keys and values in it, itself included, ``weight`` their characters, ``depth`` the levels below it.
    """

    value: Scalar | list[YamlNode] | dict[str, YamlEntry]
    line: int
    column: int
    text: str = ""
    size: int = 1
    weight: int = 0
    depth: int = 0

    def plain(self) -> Json:
        """Return the value without locations."""
        match self.value:
            case dict():
                return {key: entry.node.plain() for key, entry in self.value.items()}
            case list():
                return [node.plain() for node in self.value]
            case _:
                return self.value


@dataclass(eq=False)
class YamlEntry:
    """A key of a mapping: the key's line and column, and its value."""

    line: int
    column: int
    node: YamlNode


def node_of(value: Json, problems: Problems | None = None, path: str = "") -> YamlNode:
    """Return data as a node without a location, for the readers of documents; NUL characters are reported to ``problems``."""
    match value:
        case dict():
            prefix = f"{path}." if path else ""
            entries = {
                key: YamlEntry(0, 0, node_of(inner, problems, f"{prefix}{key}"))
                for key, inner in value.items()
            }
            return YamlNode(entries, 0, 0)
        case list():
            nodes = [node_of(inner, problems, f"{path}[{index}]") for index, inner in enumerate(value)]
            return YamlNode(nodes, 0, 0)
        case None:
            return YamlNode(None, 0, 0)
        case bool():
            return YamlNode(value, 0, 0, text="true" if value else "false")
        case _:
            text = str(value)
            if problems and "\0" in text:
                problems.add(Code.CONTROL_CHARACTER, SourceLocation(path=path), _NUL, fix="remove it")
            return YamlNode(value, 0, 0, text=text)


@dataclass(eq=False)
class _Open:
    """A mapping or list that is not complete yet; ``key`` is the mapping's pending key."""

    node: YamlNode
    anchor: str | None
    path: str
    key: tuple[str, int, int] | None = None
    merges: list[YamlNode] = field(default_factory=list[YamlNode])


class NodeBuilder:
    """Builds nodes from a parser's events; ``parts`` are the roots of the parts that are not empty."""

    def __init__(self, problems: Problems) -> None:
        self.parts: list[YamlNode] = []
        self._problems = problems
        self._open: list[_Open] = []
        self._anchors: dict[str, YamlNode | None] = {}
        self._nodes = 0
        self._characters = 0
        self._seen_parts = 0

    def handle(self, event: yaml.Event) -> None:
        """Handle one event. Raises ``BoundExceeded``."""
        match event:
            case yaml.DocumentStartEvent():
                self._seen_parts += 1
                self._anchors.clear()
                if self._seen_parts > MAX_PARTS:
                    allowed = f"at most {MAX_PARTS} parts"
                    raise BoundExceeded(Code.TOO_LARGE, event, "the document has too many parts", allowed)
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.MappingStartEvent():
                self._start(event, {}, _MAP_TAG)
            case yaml.SequenceStartEvent():
                self._start(event, [], _SEQ_TAG)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end()
            case _:
                pass

    def _count(self, event: yaml.Event, size: int, weight: int) -> None:
        self._nodes += size
        self._characters += weight
        if self._nodes > MAX_NODES or self._characters > MAX_CHARACTERS:
            characters = f"{MAX_CHARACTERS // 1024} Ki characters"
            allowed = f"at most {MAX_NODES} values and {characters}, aliases expanded"
            raise BoundExceeded(Code.TOO_LARGE, event, "the document has too many values", allowed)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text = str(event.value)
        line, column = _position(event)
        self._count(event, 1, len(text))
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.node.value, dict) and top.key is None:
            if len(text) > MAX_KEY:
                allowed = f"at most {MAX_KEY} characters"
                raise BoundExceeded(Code.TOO_LARGE, event, "the key is too long", allowed)
            top.key = (text, line, column)
            node = YamlNode(value=text, line=line, column=column, text=text, weight=len(text))
        else:
            value = self._value(event, text)
            node = YamlNode(value=value, line=line, column=column, text=text, weight=len(text))
            self._attach(node)
        if "\0" in text:
            self._problems.add(Code.CONTROL_CHARACTER, self._location(event), _NUL, fix="remove it")
        if event.anchor:
            self._anchors[str(event.anchor)] = node

    def _location(self, event: yaml.Event) -> SourceLocation:
        line, column = _position(event)
        return SourceLocation(path=self._path(), line=line, column=column)

    def _value(self, event: yaml.ScalarEvent, text: str) -> Scalar:
        tag = event.tag
        if tag is not None and tag not in _STR_TAGS:
            self._report_tag(event, str(tag))
            return text
        if tag is not None or not event.implicit[0]:
            return text
        try:
            return resolve_scalar(text)
        except NumberError as error:
            fix = "put it in quotes if it is a string"
            location = self._location(event)
            self._problems.add(Code.BAD_NUMBER, location, str(error), found=shown(text), fix=fix)
            return None

    def _report_tag(self, event: yaml.Event, tag: str) -> None:
        self._problems.add(
            Code.BAD_TAG,
            self._location(event),
            "YAML tags are not supported",
            found=shown(tag),
            allowed="strings, numbers, booleans, lists and mappings",
            fix="remove the tag; put a string in quotes",
        )

    def _alias(self, event: yaml.AliasEvent) -> None:
        line, column = _position(event)
        name = str(event.anchor)
        node = self._anchors.get(name)
        if node is None:
            why = "contains itself" if name in self._anchors else "has no anchor before it"
            self._problems.add(Code.BAD_ALIAS, self._location(event), f"the alias *{shown(name)} {why}")
            node = YamlNode(value=None, line=line, column=column)
        self._count(event, node.size, node.weight)
        self._check_depth(event, len(self._open) + node.depth)
        top = self._open[-1] if self._open else None
        is_key = top is not None and isinstance(top.node.value, dict) and top.key is None
        if is_key and isinstance(node.value, str):
            self._open[-1].key = (node.value, line, column)
        else:
            self._attach(node)

    def _check_depth(self, event: yaml.Event, depth: int) -> None:
        if depth > MAX_DEPTH:
            allowed = f"at most {MAX_DEPTH} levels"
            raise BoundExceeded(Code.TOO_DEEP, event, "the document is nested too deeply", allowed)

    def _start(
        self, event: yaml.CollectionStartEvent, empty: list[YamlNode] | dict[str, YamlEntry], plain: str
    ) -> None:
        self._check_depth(event, len(self._open) + 1)
        self._count(event, 1, 0)
        if event.tag is not None and event.tag not in ("!", plain):
            self._report_tag(event, str(event.tag))
        anchor = str(event.anchor) if event.anchor else None
        if anchor is not None:
            self._anchors[anchor] = None
        line, column = _position(event)
        node = YamlNode(value=empty, line=line, column=column)
        self._open.append(_Open(node, anchor, self._path()))

    def _end(self) -> None:
        closed = self._open.pop()
        _merge(closed)
        _measure(closed.node)
        if closed.anchor is not None:
            self._anchors[closed.anchor] = closed.node
        self._attach(closed.node)

    def _attach(self, node: YamlNode) -> None:
        if not self._open:
            if node.value is not None or node.text:
                self.parts.append(node)
            return
        top = self._open[-1]
        if isinstance(top.node.value, list):
            top.node.value.append(node)
        elif isinstance(top.node.value, dict):
            if top.key is None:
                location = SourceLocation(path=self._path(), line=node.line, column=node.column)
                found = shown(node.plain())
                self._problems.add(Code.BAD_KEY, location, "a key must be a string", found=found)
                top.key = ("", node.line, node.column)
                return
            (key, line, column), top.key = top.key, None
            if key == "<<":
                top.merges.append(node)
            elif key in top.node.value:
                self._report_duplicate(top, key, top.node.value[key], line, column)
            else:
                top.node.value[key] = YamlEntry(line, column, node)

    def _report_duplicate(self, top: _Open, key: str, first: YamlEntry, line: int, column: int) -> None:
        self._problems.add(
            Code.DUPLICATE_KEY,
            SourceLocation(path=f"{top.path}.{key}" if top.path else key, line=line, column=column),
            f"the key {shown(key)} is given twice; the first is on line {first.line}",
            found=shown(key),
            fix="remove one of the two",
        )

    def _path(self) -> str:
        if not self._open:
            return ""
        top = self._open[-1]
        if isinstance(top.node.value, list):
            return f"{top.path}[{len(top.node.value)}]"
        if top.key is None:
            return top.path
        return f"{top.path}.{top.key[0]}" if top.path else top.key[0]


def _position(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _measure(node: YamlNode) -> None:
    children = list(_children(node))
    keys = list(node.value) if isinstance(node.value, dict) else []
    node.size = 1 + len(keys) + sum(child.size for child in children)
    node.weight = sum(map(len, keys)) + sum(child.weight for child in children)
    node.depth = 1 + max((child.depth for child in children), default=0)


def _children(node: YamlNode) -> Iterator[YamlNode]:
    if isinstance(node.value, list):
        yield from node.value
    elif isinstance(node.value, dict):
        for entry in node.value.values():
            yield entry.node


def _merge(closed: _Open) -> None:
    """Fill in missing keys from ``<<`` mappings; earlier ones win."""
    mapping = closed.node.value
    if not isinstance(mapping, dict):
        return
    for merged in closed.merges:
        for node in merged.value if isinstance(merged.value, list) else [merged]:
            if isinstance(node.value, dict):
                for key, entry in node.value.items():
                    mapping.setdefault(key, entry)
