"""Simulation: Muster's decisions under a virtual clock."""

from muster_core.simulation.journal import Entry, Journal, NodeSaid
from muster_core.simulation.plans import PLANS, Plan
from muster_core.simulation.replay import Divergence, Replayed, replay
from muster_core.simulation.settings import SECOND, WorldSettings
from muster_core.simulation.story import Chronicle, JobStory, Moment
from muster_core.simulation.whatif import Arrival, Result, arrivals_of, simulate
from muster_core.simulation.work import Work, endless, fixed, scalable, taking
from muster_core.simulation.world import NeverQuiet, World

__all__ = [
    "PLANS",
    "SECOND",
    "Arrival",
    "Chronicle",
    "Divergence",
    "Entry",
    "JobStory",
    "Journal",
    "Moment",
    "NeverQuiet",
    "NodeSaid",
    "Plan",
    "Replayed",
    "Result",
    "Work",
    "World",
    "WorldSettings",
    "arrivals_of",
    "endless",
    "fixed",
    "replay",
    "scalable",
    "simulate",
    "taking",
]
