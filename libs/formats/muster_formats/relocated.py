"""Problems of a text that was put together from another: told where the author wrote what is wrong.

A format that builds a mapping which another reader knows (a Kubernetes template from its own fields, one section from two) notes which
part came from where; a problem below a noted path is told below the path that it came from.
"""

from __future__ import annotations

import dataclasses

from muster_core.models import Problem, Severity
from muster_core.models.problem_codes import Code
from muster_formats.problems import Problems, Spot


class Relocated(Problems):
    """Problems that go to others, with their paths as the author knows them."""

    def __init__(self, problems: Problems) -> None:
        super().__init__()
        self._problems = problems
        self._moved: dict[str, str] = {}

    def note(self, path: str, origin: str) -> None:
        """What stands at ``path`` of the text that was put together came from ``origin``."""
        if path != origin:
            self._moved[path] = origin

    def origin(self, path: str) -> str:
        """Where the author wrote what stands at ``path``: by the longest noted path that it is at or below."""
        end = len(path)
        while end > 0:
            if (origin := self._moved.get(path[:end])) is not None:
                return origin + path[end:]
            end = max(path.rfind(".", 0, end), path.rfind("[", 0, end))
        return path

    def add(
        self,
        code: Code,
        spot: Spot,
        message: str,
        *,
        severity: Severity = Severity.ERROR,
        found: str = "",
        allowed: str = "",
        fix: str = "",
    ) -> None:
        """See ``Problems``."""
        there = dataclasses.replace(spot, path=self.origin(spot.path))
        told = _reworded(message, spot.path, there.path)
        self._problems.add(code, there, told, severity=severity, found=found, allowed=allowed, fix=fix)

    def at(self, path: str) -> bool:
        """See ``Problems``."""
        return self._problems.at(self.origin(path))

    @property
    def full(self) -> bool:
        """See ``Problems``."""
        return self._problems.full

    @property
    def refused(self) -> bool:
        """See ``Problems``."""
        return self._problems.refused

    def ordered(self) -> tuple[Problem, ...]:
        """See ``Problems``."""
        return self._problems.ordered()


def _reworded(message: str, path: str, origin: str) -> str:
    """A message that begins with the name of what it is about: by the author's name."""
    subject, blank, rest = message.partition(" ")
    for old, new in zip(path.rsplit(".", 2)[:0:-1], origin.rsplit(".", 2)[:0:-1], strict=False):
        if subject == old:
            return f"{new}{blank}{rest}"
    return message
