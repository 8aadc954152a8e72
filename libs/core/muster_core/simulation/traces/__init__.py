"""Workload traces: ``model`` is a trace, ``formats`` are the tabular formats, ``parser`` reads files of any format."""

from muster_core.simulation.traces.formats import FORMATS, OWN_FORMAT, TABLE_FORMATS
from muster_core.simulation.traces.model import GPU_MODEL_LABEL, Trace, TraceJob, made_elastic
from muster_core.simulation.traces.parser import read_trace

__all__ = [
    "FORMATS",
    "GPU_MODEL_LABEL",
    "OWN_FORMAT",
    "TABLE_FORMATS",
    "Trace",
    "TraceJob",
    "made_elastic",
    "read_trace",
]
