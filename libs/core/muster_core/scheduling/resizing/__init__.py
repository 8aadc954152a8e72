"""Changes of size of running gangs.

``generations`` builds the next generation of a gang (growth, shrinking, replacement of lost replicas, late starts),
``proposals`` keeps manual sizes and scale proposals, and finds which donors must shrink for a waiting job.
"""

from muster_core.scheduling.resizing.generations import (
    given_up,
    grown,
    mended,
    shrink,
    size_within_limits,
    timed_out,
)
from muster_core.scheduling.resizing.proposals import Beside, Gift, Requests, foreseen, weigh

__all__ = [
    "Beside",
    "Gift",
    "Requests",
    "foreseen",
    "given_up",
    "grown",
    "mended",
    "shrink",
    "size_within_limits",
    "timed_out",
    "weigh",
]
