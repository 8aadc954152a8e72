"""Everything that was said in a pool, in the total order: enough to decide all of it again."""

from __future__ import annotations

import msgspec

from muster_core.events import NodeChanged, StoredEvent


class NodeSaid(msgspec.Struct, frozen=True):
    """An event of a node, and the instant (µs since the epoch) at which it was read."""

    at: int
    event: NodeChanged


Entry = StoredEvent | NodeSaid


class Journal:
    """Entries in order; nothing is kept where it is not ``kept``."""

    def __init__(self, *, kept: bool = True) -> None:
        self.entries: list[Entry] = []
        self._kept = kept

    @property
    def events(self) -> list[StoredEvent]:
        """The events of jobs, in order."""
        return [entry for entry in self.entries if isinstance(entry, StoredEvent)]

    def said(self, entry: Entry) -> None:
        """Keep an event."""
        if self._kept:
            self.entries.append(entry)
