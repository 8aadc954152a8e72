"""The journal: every event of a pool in total order, enough to repeat all decisions."""

from __future__ import annotations

import msgspec

from muster_core.events import NodeChanged, StoredEvent


class NodeSaid(msgspec.Struct, frozen=True):
    """A node event, and the time (µs since the epoch) at which it was read."""

    at: int
    event: NodeChanged


Entry = StoredEvent | NodeSaid


class Journal:
    """Entries in order; empty unless ``kept``."""

    def __init__(self, *, kept: bool = True) -> None:
        self.entries: list[Entry] = []
        self._kept = kept

    @property
    def events(self) -> list[StoredEvent]:
        """Return the job events in order."""
        return [entry for entry in self.entries if isinstance(entry, StoredEvent)]

    def said(self, entry: Entry) -> None:
        """Append an event."""
        if self._kept:
            self.entries.append(entry)
