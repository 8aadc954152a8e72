"""A log of changed nodes for indexes over all nodes.

A decision touches a few nodes of thousands. An index remembers its position in this log and updates only the nodes after
it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

_KEPT = 1 << 16


class View(Protocol):
    """An index over all nodes that is kept up to date."""

    @property
    def weight(self) -> int:
        """Return how many entries it keeps."""
        ...


class Changes:
    """A log of node names; its beginning is dropped in time."""

    __slots__ = ("_names", "_start")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._start = 0

    @property
    def end(self) -> int:
        """Return the position after the newest entry."""
        return self._start + len(self._names)

    def note(self, name: str) -> None:
        """Record that the capacity, labels or taints of a node changed, or that it is gone."""
        self._names.append(name)
        if len(self._names) > _KEPT:
            half = len(self._names) // 2
            del self._names[:half]
            self._start += half

    def note_all(self) -> None:
        """Record that every node changed."""
        self._start = self.end + 1
        self._names.clear()

    def since(self, position: int) -> Collection[str] | None:
        """Return the nodes that changed after ``position``, each once; None if that is no longer known."""
        if position < self._start:
            return None
        return dict.fromkeys(self._names[position - self._start :])
