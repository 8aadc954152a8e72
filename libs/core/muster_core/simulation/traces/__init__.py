"""Workload traces: Muster's format, and published ones."""

from muster_core.simulation.traces.model import GPU_MODEL_LABEL, Trace, TraceJob, stretched
from muster_core.simulation.traces.names import FORMATS
from muster_core.simulation.traces.reading import columns_of, read_trace

__all__ = ["FORMATS", "GPU_MODEL_LABEL", "Trace", "TraceJob", "columns_of", "read_trace", "stretched"]
