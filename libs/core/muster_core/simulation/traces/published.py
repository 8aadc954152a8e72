"""The columns of published traces.

Sources: Tiresias (NSDI'19) ``simulator/*_job.csv``; Muri (SIGCOMM'22) ``trace-data/*.csv``, in milliseconds; Pollux
(OSDI'21) ``workloads/*.csv`` and its extract of Philly, ``philly.csv``; Alibaba's cluster-trace-gpu-v2023
``openb_pod_list_*.csv``.
"""

from __future__ import annotations

from muster_core.models import GPU_MILLI, Resources
from muster_core.simulation.traces.cells import Cells
from muster_core.simulation.traces.model import TraceJob, work_of
from muster_core.simulation.work import ASSUMED_SERIAL, fixed, scalable

TIRESIAS = frozenset({"job_id", "num_gpu", "submit_time", "duration", "model_name", "iterations"})
TIRESIAS_KNOWN = TIRESIAS | {"interval"}
MURI = TIRESIAS | {"batch_size", "iteration_time"}
MURI_KNOWN = MURI | {"interval", "resource_time_0", "resource_time_1", "resource_time_2", "priority"}
POLLUX = frozenset({"time", "application", "num_replicas", "batch_size"})
POLLUX_KNOWN = POLLUX | {"name", "samples", "duration"}
PHILLY_CSV = frozenset({"timestamp", "duration", "num_gpus"})
PHILLY_CSV_KNOWN = PHILLY_CSV | {"gpu_time", "cluster"}
OPENB = frozenset({"name", "cpu_milli", "num_gpu", "gpu_milli", "creation_time", "deletion_time"})
OPENB_KNOWN = OPENB | {"memory_mib", "gpu_spec", "qos", "pod_phase", "scheduled_time"}

_US = 1_000_000
_MIB = 2**20
_MS_PER_S = 1000
_ONE_GPU = Resources(gpu=GPU_MILLI)

_GPU_HOURS = {"ncf": 0.2, "cifar10": 0.5, "bert": 3.0, "deepspeech2": 3.0, "yolov3": 20.0, "imagenet": 200.0}
"""GPU-hours by application, of the order of Pollux' Table 1 (S below 1, M to 10, L to 100, XL to 1000)."""


def read_tiresias(cells: Cells, line: int) -> TraceJob:
    """Tiresias: seconds; ``num_gpu`` workers of one GPU."""
    return _gang(
        line=line,
        name=f"job-{cells.text('job_id')}",
        submit=cells.number("submit_time"),
        duration=cells.number("duration"),
        gpus=cells.whole("num_gpu", least=1),
    )


def read_muri(cells: Cells, line: int) -> TraceJob:
    """Muri: milliseconds; ``num_gpu`` workers of one GPU."""
    return _gang(
        line=line,
        name=f"job-{cells.text('job_id')}",
        submit=cells.number("submit_time") / _MS_PER_S,
        duration=cells.number("duration") / _MS_PER_S,
        gpus=cells.whole("num_gpu", least=1),
        priority=cells.whole("priority", default=0),
    )


def read_philly(cells: Cells, line: int) -> TraceJob:
    """Philly: dates and seconds; ``num_gpus`` workers of one GPU, a queue for every virtual cluster."""
    return _gang(
        line=line,
        name=f"job-{line}",
        submit=cells.instant("timestamp"),
        duration=cells.number("duration"),
        gpus=cells.whole("num_gpus", least=1),
        queue=cells.text("cluster"),
    )


def read_pollux(cells: Cells, line: int) -> TraceJob | None:
    """Pollux: elastic jobs; their application determines their work."""
    replicas = cells.whole("num_replicas", least=1)
    application = cells.text("application")
    hours = _GPU_HOURS.get(application)
    if cells.text("duration"):
        work = work_of(cells.number("duration"), replicas, elastic=True)
    elif hours is not None:
        work = scalable(hours * 3600, ASSUMED_SERIAL)
    else:
        cells.wrong(
            "application",
            f"the application {application!r} is unknown",
            found=application,
            fix=f"add a column duration (seconds), or use one of {', '.join(sorted(_GPU_HOURS))}",
        )
        return None
    return TraceJob(
        name=cells.text("name") or f"{application}-{line}",
        submit_us=round(cells.number("time") * _US),
        work=work,
        replicas=replicas,
        min=1,
        max=max(replicas, 16),
        worker=_ONE_GPU,
        line=line,
    )


def read_openb(cells: Cells, line: int) -> TraceJob | None:
    """openb: pods with whole GPUs, or a share of one; pods that never ran are left out."""
    name = cells.text("name")
    began = cells.text("scheduled_time")
    if cells.text("pod_phase") == "Pending" and not began:
        cells.note("pod_phase", f"{name} was never scheduled, so its run time is unknown")
        return None
    created = cells.number("creation_time")
    start = cells.number("scheduled_time", default=created)
    number = cells.whole("num_gpu", default=0)
    milli = cells.whole("gpu_milli", default=0)
    if number > 1 and milli not in {0, GPU_MILLI}:
        cells.wrong(
            "gpu_milli",
            f"{name} asks for {number} GPUs of {milli} milli-GPU each; several GPUs must be whole",
        )
    models = cells.text("gpu_spec")
    return TraceJob(
        name=name or f"job-{line}",
        submit_us=round(created * _US),
        work=fixed(max(cells.number("deletion_time") - start, 0)),
        replicas=1,
        min=1,
        max=1,
        worker=Resources(
            cpu=cells.whole("cpu_milli"),
            memory=cells.whole("memory_mib", default=0) * _MIB,
            gpu=milli if number == 1 else number * GPU_MILLI,
        ),
        gpu_models=tuple(models.split("|")) if models else (),
        line=line,
    )


def _gang(
    *,
    line: int,
    name: str,
    submit: float,
    duration: float,
    gpus: int,
    priority: int = 0,
    queue: str = "",
) -> TraceJob:
    return TraceJob(
        name=name,
        submit_us=round(submit * _US),
        work=fixed(duration),
        replicas=gpus,
        min=gpus,
        max=gpus,
        worker=_ONE_GPU,
        priority=priority,
        queue=queue,
        line=line,
    )
