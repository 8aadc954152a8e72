"""What a cluster holds of a job: from its pods and its config map to the runs and to what recreates its record."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from muster_core.lifecycle import HeldJob, OrphanMark, RetainedJob, RetainedMembership
from muster_core.models import ReplicaRecord
from muster_runtimes.kubernetes.labels import GENERATION, GPUS, MEMBERS, RETAINED_JOB, decode_mark
from muster_runtimes.kubernetes.manifests import MEMBERS_KEY, RETAINED_KEY
from muster_runtimes.kubernetes.objects import ConfigMap, ObjectMeta, Pod
from muster_runtimes.protocols import Observation, ReplicaId
from muster_runtimes.records import replica_record

T = TypeVar("T")


def encode_retained(retained: bytes) -> str:
    """Return what recreates the record of a job as the value of an annotation."""
    return base64.b64encode(zlib.compress(retained)).decode()


def held_job(
    job_id: str,
    observations: Sequence[Observation],
    pods: Mapping[ReplicaId, Pod],
    config_map: ConfigMap | None,
) -> HeldJob:
    """Return everything that a cluster holds of a job.

    Args:
        job_id: The job.
        observations: Its observed runs.
        pods: The pods of its runs that have one.
        config_map: Its config map, if it has one.
    """
    retained, members = _in_config_map(config_map) if config_map else _in_annotations(pods.values())
    return HeldJob(
        job_id=job_id,
        runs=tuple(_run(seen, pods.get(seen.replica)) for seen in observations),
        retained=_decoded(retained, RetainedJob),
        membership=_decoded(members, RetainedMembership),
        mark=mark_of(pod.metadata for pod in pods.values()),
    )


def mark_of(objects: Iterable[ObjectMeta]) -> OrphanMark | None:
    """Return the mark of the objects of a job, the earliest of several; a requested removal of one counts for all."""
    marks = [mark for metadata in objects if (mark := decode_mark(metadata)) is not None]
    if not marks:
        return None
    return OrphanMark(
        found_at=min(mark.found_at for mark in marks),
        removal_requested=any(mark.removal_requested for mark in marks),
    )


def _run(seen: Observation, pod: Pod | None) -> ReplicaRecord:
    if pod is None:
        return replica_record(seen)
    generation = pod.metadata.labels.get(GENERATION, "")
    gpus = pod.metadata.annotations.get(GPUS, "").split(",")
    return replica_record(
        seen,
        node=pod.spec.node_name,
        generation=int(generation) if generation.isdecimal() else 1,
        gpus=tuple(int(gpu) for gpu in gpus if gpu.isdecimal()),
    )


def _in_config_map(config_map: ConfigMap) -> tuple[bytes, bytes]:
    found = (config_map.binary_data.get(key, "") for key in (RETAINED_KEY, MEMBERS_KEY))
    retained, members = (base64.b64decode(text) for text in found)
    return retained, members


def _in_annotations(pods: Iterable[Pod]) -> tuple[bytes, bytes]:
    """Return what the newest pod with the annotations has: it started with the latest members."""
    newest_first = sorted(pods, key=lambda pod: pod.metadata.creation_timestamp, reverse=True)
    for pod in newest_first:
        annotations = pod.metadata.annotations
        if RETAINED_JOB in annotations:
            try:
                retained = zlib.decompress(base64.b64decode(annotations[RETAINED_JOB]))
            except (ValueError, zlib.error):
                continue
            return retained, annotations.get(MEMBERS, "").encode()
    return b"", b""


def _decoded(content: bytes, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
