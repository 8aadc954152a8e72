"""The reservations of the last pass, for as long as nothing that they follow from has changed.

To derive them costs milliseconds on a large pool, and most passes follow events that free or take no room: another submission, a
reason that was told. What is remembered is what would be derived again, so that it makes no difference to what is decided.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from muster_core.scheduling.queues.keeping import Kept


class Remembered:
    """What was kept, and under which conditions."""

    def __init__(self) -> None:
        self._conditions: Hashable = None
        self._at = 0
        self._until: int | None = None
        self._kept: tuple[Kept, ...] = ()

    def recall(self, conditions: Hashable, now: int) -> tuple[Kept, ...] | None:
        """What is to be kept at ``now`` (µs) under the same ``conditions``, or None where that has to be derived."""
        if (
            conditions != self._conditions
            or now < self._at
            or (self._until is not None and now >= self._until)
        ):
            return None
        return self._kept

    def note(self, conditions: Hashable, *, at: int, until: int | None, kept: Sequence[Kept]) -> None:
        """At ``at`` (µs) this was derived; it holds to before ``until``, None: until the conditions change."""
        self._conditions = conditions
        self._at = at
        self._until = until
        self._kept = tuple(kept)
