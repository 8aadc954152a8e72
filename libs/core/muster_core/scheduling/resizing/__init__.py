"""Changes of size of running gangs.

``generations`` builds the next generation of a gang (growth, shrinking, replacement of lost replicas, late starts),
``proposals`` keeps manual sizes and scale proposals, and finds which donors must shrink for a waiting job.
"""

from muster_core.scheduling.resizing.generations import (
    grow,
    handle_start_timeout,
    replace_lost_replicas,
    scale_down,
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
    "grow",
    "handle_start_timeout",
    "replace_lost_replicas",
    "required_donations",
    "scale_down",
    "shrink",
    "size_within_limits",
    "terminating_released",
]
