"""Recent events, for a new leader: its predecessor may have died between publishing them and exporting their spans.

A span has the same id whichever instance records it: a trace store that has it already keeps one, or shows it twice.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from muster_bus import Bus, BusUnavailable
from muster_bus.ordered_consumer import StreamRange, read_range
from muster_core.events import JobEvent, StoredEvent
from muster_events.catalogue import JOBS_STREAM
from muster_events.codec import UnreadableEvent, read_job_event
from muster_events.subjects import job_events

log = logging.getLogger(__name__)

_UNSENT_S = 2.0
"""An instance exports its spans every second: those of earlier events are sent."""

_MOST = 20_000
"""How far back at most, in events of all jobs: under heavy load losing a little is better than reading much again."""


async def recent_events(bus: Bus, kinds: Sequence[type[JobEvent]], *, seconds: float) -> list[StoredEvent]:
    """Return the events of these ``kinds`` whose spans may be unsent, in order; none if the broker is unavailable.

    They are the events of the last two seconds before the last one, if that is not older than ``seconds``.
    """
    since = time.time_ns() // 1000 - round(seconds * 1_000_000)
    found: list[StoredEvent] = []
    try:
        last = await bus.last_sequence(JOBS_STREAM)
        stretch = StreamRange(
            stream=JOBS_STREAM,
            filters=[job_events(kind.__name__) for kind in kinds],
            after=max(last - _MOST, 0),
            through=last,
        )
        async for chunk in read_range(bus, stretch):
            for message in chunk:
                try:
                    stored = read_job_event(message)
                except UnreadableEvent:
                    # The event's reader dead-letters it.
                    continue
                if stored.at >= since:
                    found.append(stored)
    except BusUnavailable as error:
        log.info("recent events cannot be read: %s", error)
    unsent = found[-1].at - round(_UNSENT_S * 1_000_000) if found else 0
    return [stored for stored in found if stored.at >= unsent]
