"""When and whom to grow: policies that look at a pool and propose; the scheduler disposes."""

from muster_core.elasticity.dragon import DragonSettings
from muster_core.elasticity.proposal import ScaleProposal
from muster_core.elasticity.view import PoolView, view_of

__all__ = ["DragonSettings", "PoolView", "ScaleProposal", "view_of"]
