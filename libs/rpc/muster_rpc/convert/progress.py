"""How far a job has come and how it scales, as the API answers it."""

from __future__ import annotations

from muster_core.frameworks import computes
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_core.lifecycle.speed_up import speed_up_of
from muster_core.models import JobRecord, replica_name
from muster_rpc.convert.instants import timestamp_to_proto
from muster_rpc.v1 import job_pb2

_US = 1_000_000


def progress_to_proto(record: JobRecord) -> job_pb2.Progress | None:
    """The job's last report, with what was measured so far; None where it has made none."""
    said = record.progress
    if said is None:
        return None
    return job_pb2.Progress(
        step=said.step,
        at=timestamp_to_proto(said.at),
        replica=replica_name(record.name, said.role, said.index),
        metrics=said.metrics,
        throughput=[
            job_pb2.Throughput(workers=one.workers, steps_per_second=one.steps * _US / one.micros)
            for one in record.throughput
            if one.micros
        ],
    )


def speed_up_to_proto(record: JobRecord) -> job_pb2.SpeedUp | None:
    """How the job scales; None where its size cannot change, or it does not run."""
    if record.job is None or record.phase not in ACTIVE_PHASES:
        return None
    if not any(role.min < role.max and computes(role.name) for role in record.job.roles):
        return None
    workers = sum(1 for member in record.members() if computes(member.role))
    speed_up = speed_up_of(record.throughput)
    return job_pb2.SpeedUp(
        workers=workers,
        factor=float(speed_up.at(workers)),
        gain=float(speed_up.gain(workers)),
        serial_fraction=float(speed_up.serial),
        measured_sizes=speed_up.sizes,
    )
