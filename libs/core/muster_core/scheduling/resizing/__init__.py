"""Changes of size of running gangs.

``generations`` builds the next generation of a gang (growth, shrinking, replacement of lost replicas, late starts),
``proposals`` keeps manual sizes and scale proposals, and finds which donors must shrink for a waiting job.
"""

from muster_core.scheduling.resizing.generations import (
    given_up,
    grown,
    handle_start_timeout,
    replace_lost_replicas,
    shrink,
    size_within_limits,
)
from muster_core.scheduling.resizing.proposals import (
    BeneficiaryFit,
    DonatedReplica,
    ResizeRequests,
    required_donations,
    terminating_released,
)

__all__ = [
    "BeneficiaryFit",
    "DonatedReplica",
    "ResizeRequests",
    "given_up",
    "grown",
    "handle_start_timeout",
    "replace_lost_replicas",
    "required_donations",
    "shrink",
    "size_within_limits",
    "terminating_released",
]
