"""Simulation: Muster's decisions under a virtual clock.

``simulation`` drives a pool with an event queue, on the ``runtime`` and the ``workload`` that it simulates; ``report``
records and measures it. ``what_if`` runs arrivals on a ``cluster`` under a policy; ``traces`` reads workload traces;
``replay`` repeats the decisions of a stream of events.
"""

from muster_core.simulation.cluster import (
    is_shorthand as is_shorthand,
    read_cluster as read_cluster,
    read_shorthand as read_shorthand,
)
from muster_core.simulation.replay import (
    JournalEntry as JournalEntry,
    NodeObserved as NodeObserved,
    replay as replay,
)
from muster_core.simulation.report import (
    JobTimeline as JobTimeline,
    Measures as Measures,
    PoolSample as PoolSample,
    completions as completions,
    measures_of as measures_of,
    utilisation_over_time as utilisation_over_time,
)
from muster_core.simulation.settings import SECOND as SECOND, SimulationSettings as SimulationSettings
from muster_core.simulation.simulation import Simulation as Simulation
from muster_core.simulation.traces import (
    FORMATS as FORMATS,
    OWN_FORMAT as OWN_FORMAT,
    TABLE_FORMATS as TABLE_FORMATS,
    Trace as Trace,
    TraceJob as TraceJob,
    made_elastic as made_elastic,
    read_trace as read_trace,
)
from muster_core.simulation.what_if import (
    POLICIES as POLICIES,
    Arrival as Arrival,
    SimulationResult as SimulationResult,
    arrivals_of as arrivals_of,
    queues_under as queues_under,
    simulate as simulate,
)
from muster_core.simulation.workload import (
    Work as Work,
    WorkProgress as WorkProgress,
    endless as endless,
    fixed as fixed,
    scalable as scalable,
    scalable_duration as scalable_duration,
)
