"""Simulation: Muster's decisions under a virtual clock.

``simulation`` drives a pool with an event queue, on the ``runtime`` and the ``workload`` that it simulates; ``report``
records and measures it. ``what_if`` runs arrivals on a ``cluster`` under a policy; ``traces`` reads workload traces;
``replay`` repeats the decisions of a stream of events.
"""

from muster_core.simulation.cluster import is_shorthand, read_cluster, read_shorthand
from muster_core.simulation.replay import JournalEntry, NodeObserved, replay
from muster_core.simulation.report import (
    JobTimeline,
    Measures,
    PoolSample,
    completions,
    measures_of,
    utilisation_over_time,
)
from muster_core.simulation.settings import SECOND, SimulationSettings
from muster_core.simulation.simulation import Simulation
from muster_core.simulation.traces import (
    FORMATS,
    OWN_FORMAT,
    TABLE_FORMATS,
    Trace,
    TraceJob,
    made_elastic,
    read_trace,
)
from muster_core.simulation.what_if import (
    POLICIES,
    Arrival,
    SimulationResult,
    arrivals_of,
    queues_under,
    simulate,
)
from muster_core.simulation.workload import Work, WorkProgress, endless, fixed, scalable, scalable_duration

__all__ = [
    "FORMATS",
    "OWN_FORMAT",
    "POLICIES",
    "SECOND",
    "TABLE_FORMATS",
    "Arrival",
    "JobTimeline",
    "JournalEntry",
    "Measures",
    "NodeObserved",
    "PoolSample",
    "Simulation",
    "SimulationResult",
    "SimulationSettings",
    "Trace",
    "TraceJob",
    "Work",
    "WorkProgress",
    "arrivals_of",
    "completions",
    "endless",
    "fixed",
    "is_shorthand",
    "made_elastic",
    "measures_of",
    "queues_under",
    "read_cluster",
    "read_shorthand",
    "read_trace",
    "replay",
    "scalable",
    "scalable_duration",
    "simulate",
    "utilisation_over_time",
]
