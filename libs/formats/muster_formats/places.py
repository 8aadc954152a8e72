"""Where the rules' words stand in a document: a rule speaks of a role's ``min``, a TFJob of ``spec.min-instances``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from muster_formats.problems import Spot


@dataclass(frozen=True)
class Place:
    """A field of the model: of the job, or of a role, or of one of its overrides."""

    field: str
    role: str = ""
    index: int | None = None


class Locator(Protocol):
    """Finds places and knows what they are called."""

    def spot(self, place: Place) -> Spot:
        """Where the place stands."""
        ...

    def word(self, place: Place) -> str:
        """What it is called."""
        ...


@dataclass
class Places:
    """The places that a format noted while it read; what was not noted is found at the nearest place that was."""

    root: Spot
    _spots: dict[Place, Spot] = field(default_factory=dict[Place, Spot])
    _words: dict[Place, str] = field(default_factory=dict[Place, str])

    def note(self, place: Place, spot: Spot, word: str = "") -> None:
        """Remember where a place stands, and what it is called there if not by its own name."""
        self._spots[place] = spot
        if word:
            self._words[place] = word

    def spot(self, place: Place) -> Spot:
        """See ``Locator``."""
        nearer = (place, Place(place.field, place.role), Place("role", place.role), Place("roles"))
        return next((self._spots[known] for known in nearer if known in self._spots), self.root)

    def word(self, place: Place) -> str:
        """See ``Locator``."""
        return self._words.get(place, place.field)
