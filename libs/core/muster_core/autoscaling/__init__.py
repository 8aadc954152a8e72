"""Autoscaling: which running jobs to resize. It proposes; the scheduler decides.

``planner`` makes the plan of a pool: ``scale_down`` frees capacity for starved jobs, ``scale_up`` gives idle capacity
to jobs. ``policies`` rank jobs, ``settings`` configure and constrain every policy. ``proposals``
builds the proposals and remembers the last ones; ``pool`` follows a pool's events.
"""

from muster_core.autoscaling.planner import next_check as next_check, plan as plan
from muster_core.autoscaling.pool import LazyPoolState as LazyPoolState
from muster_core.autoscaling.proposals import (
    PROPOSAL_CODES as PROPOSAL_CODES,
    ProposalHistory as ProposalHistory,
    ScaleProposal as ScaleProposal,
)
from muster_core.autoscaling.settings import ElasticSettings as ElasticSettings
