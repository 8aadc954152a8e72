"""The tabular trace formats: Muster's own columns, and those of published traces.

Sources: Tiresias (NSDI'19) ``simulator/*_job.csv``; Muri (SIGCOMM'22) ``trace-data/*.csv``, in milliseconds; Pollux
(OSDI'21) ``workloads/*.csv`` and its extract of Philly, ``philly.csv``; Alibaba's cluster-trace-gpu-v2023
``openb_pod_list_*.csv``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from muster_core.models import GPU_MILLI, Resources
from muster_core.simulation.traces.model import TraceJob, work_of
from muster_core.simulation.traces.table import TableRow
from muster_core.simulation.workload import ASSUMED_SERIAL, fixed, scalable

OWN_FORMAT = "muster"
PHILLY_JSON = "philly-json"

_US = 1_000_000
_WHOLE = 1000
_MIB = 2**20
_GIB = 2**30
_MS_PER_S = 1000
_ONE_GPU = Resources(gpu=GPU_MILLI)

_GPU_HOURS = {"ncf": 0.2, "cifar10": 0.5, "bert": 3.0, "deepspeech2": 3.0, "yolov3": 20.0, "imagenet": 200.0}
"""GPU-hours by application, of the order of Pollux' Table 1 (S below 1, M to 10, L to 100, XL to 1000)."""


class TableFormat(msgspec.Struct, frozen=True, kw_only=True):
    """A tabular format: required and all known columns, and the reader of a row with its line number."""

    name: str
    required: frozenset[str]
    known: frozenset[str]
    read: Callable[[TableRow, int], TraceJob | None]


def _format(
    name: str, read: Callable[[TableRow, int], TraceJob | None], required: Iterable[str], optional: str
) -> TableFormat:
    columns = frozenset(required)
    return TableFormat(name=name, required=columns, known=columns | set(optional.split()), read=read)


def _read_own(row: TableRow, line: int) -> TraceJob | None:
    """Read a row: ``work_s`` is the time of one worker alone, ``duration_s`` that of ``replicas`` workers."""
    replicas = row.integer("replicas", default=1, minimum=1)
    low = row.integer("min", default=replicas, minimum=1)
    high = row.integer("max", default=replicas, minimum=1)
    serial = round(row.number("serial", default=ASSUMED_SERIAL / _WHOLE) * _WHOLE)
    if not low <= replicas <= high:
        row.error("replicas", f"replicas is {replicas}, which is not between min {low} and max {high}")
    if serial > _WHOLE:
        row.error("serial", f"serial must be a fraction from 0 to 1, not {serial / _WHOLE:g}")
    if bool(row.text("duration_s")) == bool(row.text("work_s")):
        row.error("duration_s", "a job needs either duration_s or work_s", fix="fill in one of the two")
        return None
    if row.text("work_s"):
        work = scalable(row.number("work_s"), serial)
    else:
        own_serial = serial if row.text("serial") else None
        work = work_of(row.number("duration_s"), replicas, elastic=low < high, serial=own_serial)
    return TraceJob(
        name=row.text("name") or f"job-{line}",
        submit_us=round(row.number("submit_s") * _US),
        work=work,
        replicas=replicas,
        min=low,
        max=high,
        worker=Resources(
            cpu=round(row.number("cpus", default=0) * _WHOLE),
            memory=round(row.number("memory_gib", default=0) * _GIB),
            gpu=round(row.number("gpus", default=1) * GPU_MILLI),
        ),
        priority=row.integer("priority", default=0, minimum=-(2**31)),
        queue=row.text("queue"),
        namespace=row.text("namespace") or "default",
        user=row.text("user"),
        line=line,
    )


def _read_tiresias(row: TableRow, line: int) -> TraceJob:
    return _gang(
        line,
        name=f"job-{row.text('job_id')}",
        submit_s=row.number("submit_time"),
        duration_s=row.number("duration"),
        gpus=row.integer("num_gpu", minimum=1),
    )


def _read_muri(row: TableRow, line: int) -> TraceJob:
    return _gang(
        line,
        name=f"job-{row.text('job_id')}",
        submit_s=row.number("submit_time") / _MS_PER_S,
        duration_s=row.number("duration") / _MS_PER_S,
        gpus=row.integer("num_gpu", minimum=1),
        priority=row.integer("priority", default=0),
    )


def _read_philly(row: TableRow, line: int) -> TraceJob:
    return _gang(
        line,
        name=f"job-{line}",
        submit_s=row.timestamp("timestamp"),
        duration_s=row.number("duration"),
        gpus=row.integer("num_gpus", minimum=1),
        queue=row.text("cluster"),
    )


def _read_pollux(row: TableRow, line: int) -> TraceJob | None:
    """Read an elastic job; its application determines its work."""
    replicas = row.integer("num_replicas", minimum=1)
    application = row.text("application")
    hours = _GPU_HOURS.get(application)
    if row.text("duration"):
        work = work_of(row.number("duration"), replicas, elastic=True)
    elif hours is not None:
        work = scalable(hours * 3600)
    else:
        row.error(
            "application",
            f"the application {application!r} is unknown",
            found=application,
            fix=f"add a column duration (seconds), or use one of {', '.join(sorted(_GPU_HOURS))}",
        )
        return None
    return TraceJob(
        name=row.text("name") or f"{application}-{line}",
        submit_us=round(row.number("time") * _US),
        work=work,
        replicas=replicas,
        min=1,
        max=max(replicas, 16),
        worker=_ONE_GPU,
        line=line,
    )


def _read_openb(row: TableRow, line: int) -> TraceJob | None:
    """Read a pod with whole GPUs, or a share of one; pods that never ran are omitted."""
    name = row.text("name")
    if row.text("pod_phase") == "Pending" and not row.text("scheduled_time"):
        row.warn("pod_phase", f"{name} was never scheduled, so its run time is unknown; it is omitted")
        return None
    created = row.number("creation_time")
    start = row.number("scheduled_time", default=created)
    number = row.integer("num_gpu", default=0)
    milli = row.integer("gpu_milli", default=0)
    if number > 1 and milli not in {0, GPU_MILLI}:
        row.error(
            "gpu_milli",
            f"{name} requests {number} GPUs of {milli} milli-GPU each; several GPUs must be whole",
        )
    models = row.text("gpu_spec")
    return TraceJob(
        name=name or f"job-{line}",
        submit_us=round(created * _US),
        work=fixed(max(row.number("deletion_time") - start, 0)),
        replicas=1,
        min=1,
        max=1,
        worker=Resources(
            cpu=row.integer("cpu_milli"),
            memory=row.integer("memory_mib", default=0) * _MIB,
            gpu=milli if number == 1 else number * GPU_MILLI,
        ),
        gpu_models=tuple(models.split("|")) if models else (),
        line=line,
    )


def _gang(
    line: int, *, name: str, submit_s: float, duration_s: float, gpus: int, priority: int = 0, queue: str = ""
) -> TraceJob:
    """Return a rigid job of ``gpus`` workers of one GPU."""
    return TraceJob(
        name=name,
        submit_us=round(submit_s * _US),
        work=fixed(duration_s),
        replicas=gpus,
        min=gpus,
        max=gpus,
        worker=_ONE_GPU,
        priority=priority,
        queue=queue,
        line=line,
    )


_TIRESIAS = ("job_id", "num_gpu", "submit_time", "duration", "model_name", "iterations")
TABLE_FORMATS = (
    _format(
        OWN_FORMAT,
        _read_own,
        ("submit_s", "replicas"),
        "name duration_s work_s serial min max gpus cpus memory_gib priority queue namespace user",
    ),
    _format("tiresias", _read_tiresias, _TIRESIAS, "interval"),
    _format(
        "muri",
        _read_muri,
        (*_TIRESIAS, "batch_size", "iteration_time"),
        "interval resource_time_0 resource_time_1 resource_time_2 priority",
    ),
    _format(
        "pollux", _read_pollux, ("time", "application", "num_replicas", "batch_size"), "name samples duration"
    ),
    _format("philly", _read_philly, ("timestamp", "duration", "num_gpus"), "gpu_time cluster"),
    _format(
        "openb",
        _read_openb,
        ("name", "cpu_milli", "num_gpu", "gpu_milli", "creation_time", "deletion_time"),
        "memory_mib gpu_spec qos pod_phase scheduled_time",
    ),
)
"""The tabular formats."""

FORMATS = (*(table.name for table in TABLE_FORMATS), PHILLY_JSON)
"""The names of all formats."""
