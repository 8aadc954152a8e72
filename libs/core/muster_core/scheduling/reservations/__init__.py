"""Capacity that is reserved for waiting jobs.

``reservation`` decides which jobs get a reservation and withholds the capacity from others (EASY backfill),
``expected_releases`` estimates when running jobs give capacity back and finds the earliest start of a gang,
``preemption`` evicts or shrinks jobs for a job with a guarantee or a higher priority.
"""

from muster_core.scheduling.reservations.expected_releases import (
    Durations,
    Ending,
    Leaver,
    StillHeld,
    first_fit,
    is_countable,
    leaving,
    opening_for,
)
from muster_core.scheduling.reservations.reservation import (
    LAUNCH_MARGIN_US,
    KeptRoom,
    Remembered,
    Reservation,
    Reserving,
)

__all__ = [
    "LAUNCH_MARGIN_US",
    "Durations",
    "Ending",
    "KeptRoom",
    "Leaver",
    "Remembered",
    "Reservation",
    "Reserving",
    "StillHeld",
    "first_fit",
    "is_countable",
    "leaving",
    "opening_for",
]
