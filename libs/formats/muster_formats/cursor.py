"""A cursor: a node of a document with its field path, and where problems with it are reported."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from muster_core.models.problem_codes import Code
from muster_formats.nodes import YamlNode
from muster_formats.problems import Problems, SourceLocation, shown

_MAX_SUGGESTED = 64


@dataclass(frozen=True)
class Cursor:
    """A node, its field path, and the problems of the document."""

    node: YamlNode
    path: str
    problems: Problems

    @property
    def location(self) -> SourceLocation:
        """The source location of the value."""
        return SourceLocation(path=self.path, line=self.node.line, column=self.node.column)

    @property
    def is_null(self) -> bool:
        """Whether the value is null, which counts as not given."""
        return self.node.value is None

    def items(self) -> dict[str, Cursor]:
        """The values of a mapping by key; empty if the value is not a mapping."""
        value = self.node.value
        if not isinstance(value, dict):
            return {}
        return {key: Cursor(entry.node, self.below(key), self.problems) for key, entry in value.items()}

    def elements(self) -> list[Cursor]:
        """The values of a list; empty if the value is not a list."""
        value = self.node.value
        if not isinstance(value, list):
            return []
        return [Cursor(node, f"{self.path}[{index}]", self.problems) for index, node in enumerate(value)]

    def below(self, key: str) -> str:
        """The path of a key of this mapping."""
        return f"{self.path}.{key}" if self.path else key

    def key_location(self, key: str) -> SourceLocation:
        """The source location of a key; of this value if it has no such key."""
        value = self.node.value
        entry = value.get(key) if isinstance(value, dict) else None
        line, column = (entry.line, entry.column) if entry else (self.node.line, self.node.column)
        return SourceLocation(path=self.below(key), line=line, column=column)

    def error(
        self, code: Code, message: str, *, found: str | None = None, allowed: str = "", fix: str = ""
    ) -> None:
        """Report an error in this value; ``found`` is the value by default."""
        found = shown(self.node.plain()) if found is None else found
        self.problems.add(code, self.location, message, found=found, allowed=allowed, fix=fix)

    def wrong_type(self, expected: str, fix: str = "") -> None:
        """Report that the value has the wrong type; ``expected`` is for example ``a whole number``."""
        found = shown(self.node.plain())
        subject = _last_field(self.path) or "the document"
        message = f"{subject} must be {expected}, not {found}"
        self.error(Code.WRONG_TYPE, message, allowed=expected, fix=fix)

    def missing(self, key: str, message: str, fix: str = "") -> None:
        """Report that a key of this mapping is missing, unless there is an error at it already."""
        if not self.problems.has_error_at(self.below(key)):
            self.problems.add(Code.REQUIRED, self.key_location(key), message, fix=fix)

    def unknown(self, key: str, known: Iterable[str]) -> None:
        """Report an unknown key, and suggest the nearest known one."""
        if self.problems.full:
            return
        names = sorted(known)
        near = nearest(key, names)
        where = _last_field(self.path) if self.path else "the document"
        self.problems.add(
            Code.UNKNOWN_FIELD,
            self.key_location(key),
            f"{where} has no field {shown(key)}",
            found=shown(key),
            allowed=", ".join(names),
            fix=f"did you mean {near}?" if near else "remove it",
        )

    def warn_ignored(self, field: str, why: str, *, fix: str = "") -> None:
        """Warn that this value is accepted and has no effect; ``field`` is what the message calls it."""
        message = f"{field} has no effect: {why}"
        self.problems.warn(Code.IGNORED, self.location, message, fix=fix)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to ``name``, ignoring case; empty if none is close."""
    if len(name) > _MAX_SUGGESTED:
        return ""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else ""


def _last_field(path: str) -> str:
    return path.rsplit(".", 1)[-1] or path
