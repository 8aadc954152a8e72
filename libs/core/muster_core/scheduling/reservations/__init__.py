"""Capacity that is reserved for waiting jobs.

``reservation`` decides which jobs get a reservation and withholds the capacity from others (EASY backfill),
``expected_releases`` estimates when running jobs give capacity back and finds the earliest start of a gang,
``preemption`` evicts or shrinks jobs for a job with a guarantee or a higher priority.
"""

from muster_core.scheduling.reservations.expected_releases import (
    ExpectedRelease as ExpectedRelease,
    ReleaseTimeline as ReleaseTimeline,
    RemainingReleases as RemainingReleases,
    RuntimeEstimates as RuntimeEstimates,
    earliest_fit as earliest_fit,
    earliest_placement as earliest_placement,
    has_equal_replicas as has_equal_replicas,
    terminating_releases as terminating_releases,
)
from muster_core.scheduling.reservations.reservation import (
    LAUNCH_MARGIN_US as LAUNCH_MARGIN_US,
    Reservation as Reservation,
    ReservationCache as ReservationCache,
    ReservationPlanner as ReservationPlanner,
    Reservations as Reservations,
)
