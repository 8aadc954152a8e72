"""Amounts of resources on the wire; the units are in the proto's field names."""

from __future__ import annotations

from muster_core.models import Resources
from muster_rpc.v1 import job_pb2


def resources_to_proto(resources: Resources) -> job_pb2.Resources:
    """The amounts as a message. Raises ``ValueError`` when one does not fit in 64 bits."""
    return job_pb2.Resources(
        cpu_milli=resources.cpu,
        memory_bytes=resources.memory,
        gpu_milli=resources.gpu,
        gpu_memory_bytes=resources.gpu_memory,
        ephemeral_storage_bytes=resources.ephemeral_storage,
        extended=resources.extended,
    )


def resources_from_proto(message: job_pb2.Resources) -> Resources:
    """The amounts of a message."""
    return Resources(
        cpu=message.cpu_milli,
        memory=message.memory_bytes,
        gpu=message.gpu_milli,
        gpu_memory=message.gpu_memory_bytes,
        ephemeral_storage=message.ephemeral_storage_bytes,
        extended=dict(message.extended),
    )
