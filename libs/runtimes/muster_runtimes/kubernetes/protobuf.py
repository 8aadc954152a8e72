"""Kubernetes' objects in protobuf, as they are in JSON.

Every conversion takes ``bytes`` that begin with ``MAGIC`` and raises ``Unreadable`` for what is no such message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from muster_runtimes.kubernetes.objects import (
    Condition,
    Container,
    ContainerState,
    ContainerStatus,
    Metadata,
    Pod,
    PodSpec,
    PodStatus,
    Running,
    Status,
    Terminated,
    Waiting,
)
from muster_runtimes.kubernetes.v1 import pods_pb2 as pb

MAGIC = b"k8s\0"
"""What an object in protobuf begins with, so that it cannot be taken for JSON."""

M = TypeVar("M", bound=Message)
_Amounts = dict[str, str]


class Unreadable(Exception):
    """Bytes that are not what they should be."""


def event_of(data: bytes) -> tuple[str, bytes]:
    """The type of a watch's event, and its object."""
    event = _parsed(pb.WatchEvent, data)
    return event.type, event.object.raw


def identity_of(data: bytes) -> tuple[str, str]:
    """The uid and the version of an object."""
    found = _parsed(pb.UnknownIdentified, _inner(data)).raw.metadata
    if not found.resource_version.isdecimal():
        raise Unreadable("an object without a version")
    return found.uid, found.resource_version


def status_of(data: bytes) -> Status:
    """What the API server says of a request that it did not do."""
    found = _parsed(pb.UnknownStatus, _inner(data)).raw
    return Status(code=found.code, reason=_text(found.reason), message=_text(found.message))


def pod_of(data: bytes) -> Pod:
    """A pod."""
    found = _parsed(pb.UnknownPod, _inner(data)).raw
    return Pod(metadata=_metadata(found.metadata), spec=_spec(found.spec), status=_status(found.status))


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise Unreadable(str(error)) from error


def _inner(data: bytes) -> bytes:
    if not data.startswith(MAGIC):
        raise Unreadable("an object without its prefix")
    return data[len(MAGIC) :]


def _text(written: bytes) -> str:
    return written.decode(errors="replace")


@lru_cache(maxsize=4096)
def _instant(seconds: int) -> str:
    if not seconds:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError) as error:
        raise Unreadable(f"an instant of {seconds} s") from error


def _amounts(quantities: Mapping[str, pb.Quantity]) -> _Amounts:
    return {name: quantity.string for name, quantity in quantities.items()}


def _resources(said: pb.ResourceRequirements) -> dict[str, _Amounts]:
    resources: dict[str, _Amounts] = {}
    if limits := _amounts(said.limits):
        resources["limits"] = limits
    if requests := _amounts(said.requests):
        resources["requests"] = requests
    return resources


def _metadata(said: pb.ObjectMeta) -> Metadata:
    return Metadata(
        name=said.name,
        namespace=said.namespace,
        uid=said.uid,
        resource_version=said.resource_version,
        labels=dict(said.labels),
        annotations={name: _text(value) for name, value in said.annotations.items()},
        finalizers=tuple(said.finalizers),
        deletion_timestamp=_instant(said.deletion_timestamp.seconds),
        deletion_grace_period_seconds=(
            said.deletion_grace_period_seconds if said.HasField("deletion_grace_period_seconds") else None
        ),
        creation_timestamp=_instant(said.creation_timestamp.seconds),
    )


def _containers(said: Iterable[pb.Container]) -> tuple[Container, ...]:
    return tuple(
        Container(name=one.name, restart_policy=one.restart_policy, resources=_resources(one.resources))
        for one in said
    )


def _spec(said: pb.PodSpec) -> PodSpec:
    return PodSpec(
        node_name=said.node_name,
        containers=_containers(said.containers),
        init_containers=_containers(said.init_containers),
        overhead=_amounts(said.overhead),
        resources=_resources(said.resources),
    )


def _status(said: pb.PodStatus) -> PodStatus:
    return PodStatus(
        phase=said.phase,
        reason=_text(said.reason),
        message=_text(said.message),
        conditions=tuple(
            Condition(
                type=one.type,
                status=one.status,
                reason=_text(one.reason),
                message=_text(one.message),
                last_transition_time=_instant(one.last_transition_time.seconds) or None,
            )
            for one in said.conditions
        ),
        container_statuses=_container_statuses(said.container_statuses),
        init_container_statuses=_container_statuses(said.init_container_statuses),
    )


def _container_statuses(said: Iterable[pb.ContainerStatus]) -> tuple[ContainerStatus, ...]:
    return tuple(ContainerStatus(name=one.name, state=_state(one.state)) for one in said)


def _state(said: pb.ContainerState) -> ContainerState:
    waiting = running = terminated = None
    if said.HasField("waiting"):
        waiting = Waiting(reason=_text(said.waiting.reason), message=_text(said.waiting.message))
    if said.HasField("running"):
        running = Running(started_at=_instant(said.running.started_at.seconds) or None)
    if said.HasField("terminated"):
        terminated = _terminated(said.terminated)
    return ContainerState(waiting=waiting, running=running, terminated=terminated)


def _terminated(said: pb.ContainerStateTerminated) -> Terminated:
    return Terminated(
        exit_code=said.exit_code,
        signal=said.signal,
        reason=_text(said.reason),
        message=_text(said.message),
        started_at=_instant(said.started_at.seconds) or None,
        finished_at=_instant(said.finished_at.seconds) or None,
    )
