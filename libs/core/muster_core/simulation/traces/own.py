"""Muster's own columns: everything that the simulator uses."""

from __future__ import annotations

from muster_core.models import GPU_MILLI, Resources
from muster_core.simulation.traces.cells import Cells
from muster_core.simulation.traces.model import TraceJob, work_of
from muster_core.simulation.work import ASSUMED_SERIAL, scalable

REQUIRED = frozenset({"submit_s", "replicas"})
KNOWN = REQUIRED | {
    "name",
    "duration_s",
    "work_s",
    "serial",
    "min",
    "max",
    "gpus",
    "cpus",
    "memory_gib",
    "priority",
    "queue",
    "namespace",
    "user",
}

_US = 1_000_000
_WHOLE = 1000
_GIB = 2**30


def read(cells: Cells, line: int) -> TraceJob | None:
    """Read one row: ``work_s`` is the time of one worker alone, ``duration_s`` that of ``replicas`` workers."""
    replicas = cells.whole("replicas", default=1, least=1)
    least = cells.whole("min", default=replicas, least=1)
    most = cells.whole("max", default=replicas, least=1)
    serial = round(cells.number("serial", default=ASSUMED_SERIAL / _WHOLE) * _WHOLE)
    if not least <= replicas <= most:
        cells.wrong("replicas", f"replicas is {replicas}, which is not between min {least} and max {most}")
    if serial > _WHOLE:
        cells.wrong("serial", f"serial must be a fraction from 0 to 1, not {serial / _WHOLE:g}")
    if bool(cells.text("duration_s")) == bool(cells.text("work_s")):
        cells.wrong("duration_s", "a job needs either duration_s or work_s", fix="fill in one of the two")
        return None
    given = serial if cells.text("serial") else None
    if cells.text("work_s"):
        work = scalable(cells.number("work_s"), serial)
    else:
        work = work_of(cells.number("duration_s"), replicas, elastic=least < most, serial=given)
    return TraceJob(
        name=cells.text("name") or f"job-{line}",
        submit_us=round(cells.number("submit_s") * _US),
        work=work,
        replicas=replicas,
        min=least,
        max=most,
        worker=Resources(
            cpu=round(cells.number("cpus", default=0) * _WHOLE),
            memory=round(cells.number("memory_gib", default=0) * _GIB),
            gpu=round(cells.number("gpus", default=1) * GPU_MILLI),
        ),
        priority=cells.whole("priority", default=0, least=-(2**31)),
        queue=cells.text("queue"),
        namespace=cells.text("namespace") or "default",
        user=cells.text("user"),
        line=line,
    )
