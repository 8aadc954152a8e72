"""How far each receiver was told of each partition: a record that the partition's holder writes by compare-and-set."""

from __future__ import annotations

import msgspec

from muster_bus import Bus, Records
from muster_events.catalogue import JOBS_STREAM, WEBHOOKS_BUCKET


class Place(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything up to sequence ``through`` is dealt with, and so are the sequences in ``beyond``, which are behind it."""

    through: int
    beyond: tuple[int, ...] = ()


class Places:
    """The place of one receiver in one partition."""

    def __init__(self, bus: Bus, *, receiver: str, partition: int) -> None:
        self._bus = bus
        self._records = Records(bus, WEBHOOKS_BUCKET)
        self._key = f"{receiver}.{partition}"
        self._revision = 0

    async def load(self) -> Place:
        """The place; that of a receiver which is new is the end of the stream, and is kept at once.

        Raises ``WrongSequence`` where another copy keeps one meanwhile, ``BusUnavailable``.
        """
        entry = await self._records.get(self._key)
        if entry is not None:
            self._revision = entry.revision
            return msgspec.json.decode(entry.value, type=Place)
        self._revision = 0
        place = Place(through=await self._bus.last_sequence(JOBS_STREAM))
        await self.save(place)
        return place

    async def save(self, place: Place) -> None:
        """Keep it. Raises ``WrongSequence`` where another copy has the partition now, ``BusUnavailable``."""
        self._revision = await self._records.put(
            self._key, msgspec.json.encode(place), expected=self._revision
        )
