"""A place in a document: a value, the path that leads to it, and where to say what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from muster_core.models.problem_codes import Code
from muster_formats.problems import Problems, Spot, shown
from muster_formats.yaml_builder import Node

_MAX_SUGGESTED = 64


@dataclass(frozen=True)
class Cursor:
    """A node, its path in the document's own words, and the problems found so far."""

    node: Node
    path: str
    problems: Problems

    @property
    def spot(self) -> Spot:
        """Where the value stands."""
        return Spot(path=self.path, line=self.node.line, column=self.node.column)

    @property
    def absent(self) -> bool:
        """Whether the value is null, which says as much as nothing."""
        return self.node.value is None

    def items(self) -> dict[str, Cursor]:
        """The values of a mapping by key; none if it is no mapping."""
        value = self.node.value
        if not isinstance(value, dict):
            return {}
        return {key: Cursor(entry.node, self.below(key), self.problems) for key, entry in value.items()}

    def elements(self) -> list[Cursor]:
        """The values of a list; none if it is no list."""
        value = self.node.value
        if not isinstance(value, list):
            return []
        return [Cursor(node, f"{self.path}[{index}]", self.problems) for index, node in enumerate(value)]

    def below(self, key: str) -> str:
        """The path of a key of this mapping."""
        return f"{self.path}.{key}" if self.path else key

    def key_spot(self, key: str) -> Spot:
        """Where a key stands; where this value stands if it has no such key."""
        value = self.node.value
        entry = value.get(key) if isinstance(value, dict) else None
        line, column = (entry.line, entry.column) if entry else (self.node.line, self.node.column)
        return Spot(path=self.below(key), line=line, column=column)

    def error(
        self, code: Code, message: str, *, found: str | None = None, allowed: str = "", fix: str = ""
    ) -> None:
        """Say what is wrong with this value; ``found`` is the value itself unless said."""
        told = shown(self.node.plain()) if found is None else found
        self.problems.add(code, self.spot, message, found=told, allowed=allowed, fix=fix)

    def wrong_type(self, due: str, fix: str = "") -> None:
        """Say that something else is due here, for example ``a whole number``."""
        told = shown(self.node.plain())
        subject = _name(self.path) or "the document"
        self.error(Code.WRONG_TYPE, f"{subject} must be {due}, not {told}", allowed=due, fix=fix)

    def missing(self, key: str, message: str, fix: str = "") -> None:
        """Say that a key of this mapping must be given, unless its value has been refused already."""
        if not self.problems.at(self.below(key)):
            self.problems.add(Code.REQUIRED, self.key_spot(key), message, fix=fix)

    def unknown(self, key: str, known: Iterable[str]) -> None:
        """Say that a key means nothing here, and which one may have been meant."""
        if self.problems.full:
            return
        names = sorted(known)
        near = nearest(key, names)
        where = _name(self.path) if self.path else "the document"
        self.problems.add(
            Code.UNKNOWN_FIELD,
            self.key_spot(key),
            f"{where} has no field {shown(key)}",
            found=shown(key),
            allowed=", ".join(names),
            fix=f"did you mean {near}?" if near else "remove it",
        )


def warn_idle(cursor: Cursor, key: str, why: str, *, fix: str = "") -> None:
    """Warn that a key is accepted and has no effect."""
    cursor.problems.warn(Code.NOT_ACTED_UPON, cursor.spot, f"{key} has no effect: {why}", fix=fix)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is most like ``word``, letter case aside; empty if none is near."""
    if len(word) > _MAX_SUGGESTED:
        return ""
    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else ""


def _name(path: str) -> str:
    return path.rsplit(".", 1)[-1] or path
