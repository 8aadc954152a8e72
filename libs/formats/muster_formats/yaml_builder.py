"""Parser events -> nodes: JSON values that know where they stand, built under bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from muster_core.models.problem_codes import Code
from muster_formats.problems import Problems, Spot, shown
from muster_formats.scalars import NumberError, Scalar, resolve

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

Json = Scalar | list["Json"] | dict[str, "Json"]
"""A JSON value."""

_STR_TAGS = frozenset({"!", "tag:yaml.org,2002:str"})
_MAP_TAG, _SEQ_TAG = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


def place_of(event: yaml.Event) -> tuple[int, int]:
    """Line and column of an event, from 1."""
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


class Bound(Exception):
    """A bound was passed: reading stops here."""

    def __init__(self, code: Code, event: yaml.Event, message: str, allowed: str) -> None:
        super().__init__(message)
        self.code, self.message, self.allowed = code, message, allowed
        self.line, self.column = place_of(event)


@dataclass(eq=False)
class Node:
    """A value and where it stands, from 1.

    ``value`` is a scalar, a list of nodes, or a mapping of texts to ``Entry``. ``text`` is what a scalar looks like in the document.
    ``size`` counts the keys and values in it, itself included, ``weight`` their characters, ``depth`` the levels below it.
    """

    value: Scalar | list[Node] | dict[str, Entry]
    line: int
    column: int
    text: str = ""
    size: int = 1
    weight: int = 0
    depth: int = 0

    def plain(self) -> Json:
        """The value without its marks."""
        match self.value:
            case dict():
                return {key: entry.node.plain() for key, entry in self.value.items()}
            case list():
                return [node.plain() for node in self.value]
            case _:
                return self.value


@dataclass(eq=False)
class Entry:
    """One key of a mapping: where the key stands, and its value."""

    line: int
    column: int
    node: Node


@dataclass(eq=False)
class _Open:
    """A mapping or list that is not complete yet; ``key`` is the mapping's pending key."""

    node: Node
    anchor: str | None
    path: str
    key: tuple[str, int, int] | None = None
    merges: list[Node] = field(default_factory=list[Node])


class Builder:
    """Takes a parser's events in order; ``parts`` are the roots of the parts that hold something."""

    def __init__(self, problems: Problems) -> None:
        self.parts: list[Node] = []
        self._problems = problems
        self._open: list[_Open] = []
        self._anchors: dict[str, Node | None] = {}
        self._nodes = 0
        self._characters = 0
        self._seen_parts = 0

    def take(self, event: yaml.Event) -> None:
        """Take one event. Raises ``Bound`` where a bound is passed."""
        match event:
            case yaml.DocumentStartEvent():
                self._seen_parts += 1
                self._anchors.clear()
                if self._seen_parts > MAX_PARTS:
                    raise Bound(
                        Code.TOO_LARGE, event, "the document has too many parts", f"at most {MAX_PARTS} parts"
                    )
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
            allowed = (
                f"at most {MAX_NODES} values and {MAX_CHARACTERS // 1024} Ki characters, aliases expanded"
            )
            raise Bound(Code.TOO_LARGE, event, "the document holds too much", allowed)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        text = str(event.value)
        line, column = place_of(event)
        self._count(event, 1, len(text))
        top = self._open[-1] if self._open else None
        if top is not None and isinstance(top.node.value, dict) and top.key is None:
            if len(text) > MAX_KEY:
                raise Bound(Code.TOO_LARGE, event, "the key is too long", f"at most {MAX_KEY} characters")
            top.key = (text, line, column)
            node = Node(value=text, line=line, column=column, text=text, weight=len(text))
        else:
            node = Node(
                value=self._meaning(event, text), line=line, column=column, text=text, weight=len(text)
            )
            self._place(node)
        if "\0" in text:
            self._nul(event)
        if event.anchor:
            self._anchors[str(event.anchor)] = node

    def _spot(self, event: yaml.Event) -> Spot:
        line, column = place_of(event)
        return Spot(path=self._path(), line=line, column=column)

    def _meaning(self, event: yaml.ScalarEvent, text: str) -> Scalar:
        tag = event.tag
        if tag is not None and tag not in _STR_TAGS:
            self._tagged(event, str(tag))
            return text
        if tag is not None or not event.implicit[0]:
            return text
        try:
            return resolve(text)
        except NumberError as error:
            fix = "put it in quotes if it is a text"
            self._problems.add(Code.BAD_NUMBER, self._spot(event), str(error), found=shown(text), fix=fix)
            return None

    def _tagged(self, event: yaml.Event, tag: str) -> None:
        self._problems.add(
            Code.BAD_TAG,
            self._spot(event),
            "tags are not taken: a document holds texts, numbers, booleans, lists and mappings",
            found=shown(tag),
            fix="remove the tag; quotes make a text",
        )

    def _nul(self, event: yaml.Event) -> None:
        words = "the character U+0000 can be in no name, argument or variable"
        self._problems.add(Code.CONTROL_CHARACTER, self._spot(event), words, fix="remove it")

    def _alias(self, event: yaml.AliasEvent) -> None:
        line, column = place_of(event)
        name = str(event.anchor)
        node = self._anchors.get(name)
        if node is None:
            why = (
                "contains itself" if name in self._anchors else "stands for nothing: no such anchor before it"
            )
            self._problems.add(Code.BAD_ALIAS, self._spot(event), f"*{shown(name)} {why}")
            node = Node(value=None, line=line, column=column)
        self._count(event, node.size, node.weight)
        if len(self._open) + node.depth > MAX_DEPTH:
            raise Bound(
                Code.TOO_DEEP, event, "the document is nested too deep", f"at most {MAX_DEPTH} levels"
            )
        top = self._open[-1] if self._open else None
        if (
            top is not None
            and isinstance(top.node.value, dict)
            and top.key is None
            and isinstance(node.value, str)
        ):
            top.key = (node.value, line, column)
        else:
            self._place(node)

    def _start(
        self, event: yaml.CollectionStartEvent, empty: list[Node] | dict[str, Entry], plain: str
    ) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise Bound(
                Code.TOO_DEEP, event, "the document is nested too deep", f"at most {MAX_DEPTH} levels"
            )
        self._count(event, 1, 0)
        if event.tag is not None and event.tag not in ("!", plain):
            self._tagged(event, str(event.tag))
        anchor = str(event.anchor) if event.anchor else None
        if anchor is not None:
            self._anchors[anchor] = None
        line, column = place_of(event)
        node = Node(value=empty, line=line, column=column)
        self._open.append(_Open(node, anchor, self._path()))

    def _end(self) -> None:
        closed = self._open.pop()
        _merge(closed)
        _measure(closed.node)
        if closed.anchor is not None:
            self._anchors[closed.anchor] = closed.node
        self._place(closed.node)

    def _place(self, node: Node) -> None:
        if not self._open:
            if node.value is not None or node.text:
                self.parts.append(node)
            return
        top = self._open[-1]
        if isinstance(top.node.value, list):
            top.node.value.append(node)
        elif isinstance(top.node.value, dict):
            if top.key is None:
                spot = Spot(path=self._path(), line=node.line, column=node.column)
                self._problems.add(Code.BAD_KEY, spot, "a key is a text", found=shown(node.plain()))
                top.key = ("", node.line, node.column)
                return
            (key, line, column), top.key = top.key, None
            if key == "<<":
                top.merges.append(node)
            elif key in top.node.value:
                self._twice(top, key, top.node.value[key], line, column)
            else:
                top.node.value[key] = Entry(line, column, node)

    def _twice(self, top: _Open, key: str, first: Entry, line: int, column: int) -> None:
        self._problems.add(
            Code.DUPLICATE_KEY,
            Spot(path=f"{top.path}.{key}" if top.path else key, line=line, column=column),
            f"the key {shown(key)} stands twice here, first on line {first.line}",
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


def _measure(node: Node) -> None:
    children = list(_children(node))
    keys = list(node.value) if isinstance(node.value, dict) else []
    node.size = 1 + len(keys) + sum(child.size for child in children)
    node.weight = sum(map(len, keys)) + sum(child.weight for child in children)
    node.depth = 1 + max((child.depth for child in children), default=0)


def _children(node: Node) -> Iterator[Node]:
    if isinstance(node.value, list):
        yield from node.value
    elif isinstance(node.value, dict):
        for entry in node.value.values():
            yield entry.node


def _merge(closed: _Open) -> None:
    """Let ``<<`` mappings fill in the keys that are not said; earlier ones win."""
    mapping = closed.node.value
    if not isinstance(mapping, dict):
        return
    for merged in closed.merges:
        for node in merged.value if isinstance(merged.value, list) else [merged]:
            if isinstance(node.value, dict):
                for key, entry in node.value.items():
                    mapping.setdefault(key, entry)
