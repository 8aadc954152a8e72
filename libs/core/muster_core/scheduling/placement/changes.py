"""Which nodes have changed, for those who keep something derived from all of them.

A decision touches a few nodes of thousands. Whoever ranks nodes remembers how much of this log it has read, and looks again only at the
nodes that come after.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

_KEPT = 1 << 16


class View(Protocol):
    """Something derived from all nodes that is kept up to date."""

    @property
    def weight(self) -> int:
        """How many entries it keeps."""
        ...


class Changes:
    """A log of node names; its beginning is forgotten in time."""

    __slots__ = ("_names", "_start")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._start = 0

    @property
    def end(self) -> int:
        """The position after the newest entry."""
        return self._start + len(self._names)

    def note(self, name: str) -> None:
        """The room, labels or taints of a node are not what they were, or the node is gone."""
        self._names.append(name)
        if len(self._names) > _KEPT:
            half = len(self._names) // 2
            del self._names[:half]
            self._start += half

    def note_all(self) -> None:
        """Every node is to be looked at anew."""
        self._start = self.end + 1
        self._names.clear()

    def since(self, position: int) -> Collection[str] | None:
        """The nodes that changed after ``position``, each once; None where that is not known any more."""
        if position < self._start:
            return None
        return dict.fromkeys(self._names[position - self._start :])
