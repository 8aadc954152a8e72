"""Workload traces: ``model`` is a trace, ``formats`` are the tabular formats, ``parser`` reads files of any format."""

from muster_core.simulation.traces.formats import (
    FORMATS as FORMATS,
    OWN_FORMAT as OWN_FORMAT,
    TABLE_FORMATS as TABLE_FORMATS,
)
from muster_core.simulation.traces.model import (
    GPU_MODEL_LABEL as GPU_MODEL_LABEL,
    Trace as Trace,
    TraceJob as TraceJob,
    made_elastic as made_elastic,
)
from muster_core.simulation.traces.parser import read_trace as read_trace
