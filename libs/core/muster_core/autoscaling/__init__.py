"""Autoscaling: which jobs to resize. It proposes; the scheduler decides."""

from muster_core.autoscaling.asked import Asked
from muster_core.autoscaling.following import FollowedPool
from muster_core.autoscaling.plan import next_check, plan
from muster_core.autoscaling.proposal import ScaleProposal
from muster_core.autoscaling.settings import ElasticSettings
from muster_core.autoscaling.view import PoolView, view_of, view_of_state
from muster_core.lifecycle import SpeedUp, speed_up_of

__all__ = [
    "Asked",
    "ElasticSettings",
    "FollowedPool",
    "PoolView",
    "ScaleProposal",
    "SpeedUp",
    "next_check",
    "plan",
    "speed_up_of",
    "view_of",
    "view_of_state",
]
