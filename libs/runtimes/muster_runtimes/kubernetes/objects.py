"""The parts of Kubernetes objects that the runtime reads, decoded from JSON or protobuf; other fields are skipped.

The protobuf decoders take bytes that begin with ``MAGIC`` and raise ``ProtobufError`` for anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from muster_runtimes.kubernetes.v1 import pods_pb2 as pb

T = TypeVar("T")


class _Object(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Base: fields are camel case in JSON."""


class ObjectMeta(_Object, frozen=True, gc=False, kw_only=True):
    """Metadata of an object. Resource versions are increasing decimal numbers."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = "0"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int | None = None
    creation_timestamp: str = ""

    @property
    def version(self) -> int:
        """The resource version as a number."""
        return int(self.resource_version or 0)


class Waiting(_Object, frozen=True, gc=False, kw_only=True):
    """The state of a container that does not run yet."""

    reason: str = ""
    message: str = ""


class Running(_Object, frozen=True, gc=False, kw_only=True):
    """The state of a running container."""

    started_at: str | None = None


class Terminated(_Object, frozen=True, gc=False, kw_only=True):
    """The state of an ended container."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_Object, frozen=True, gc=False, kw_only=True):
    """At most one of the three states."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True, gc=False, kw_only=True):
    """The status of a container."""

    name: str = ""
    state: ContainerState = ContainerState()


class StatusCondition(_Object, frozen=True, gc=False, kw_only=True):
    """A condition of a pod or node."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(_Object, frozen=True, gc=False, kw_only=True):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[StatusCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Container(_Object, frozen=True, gc=False, kw_only=True):
    """The requests of a container."""

    name: str = ""
    restart_policy: str = ""
    resources: dict[str, Any] = {}


class PodSpec(_Object, frozen=True, gc=False, kw_only=True):
    """The node and the requests of a pod."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, Any] = {}
    resources: dict[str, Any] = {}


class Pod(_Object, frozen=True, gc=False, kw_only=True):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PartialObjectMetadata(_Object, frozen=True, gc=False, kw_only=True):
    """The metadata of an object of any kind."""

    metadata: ObjectMeta


class ConfigMap(_Object, frozen=True, gc=False, kw_only=True):
    """A config map; the values of ``binary_data`` are base64."""

    metadata: ObjectMeta
    binary_data: dict[str, str] = {}


class NodeTaint(_Object, frozen=True, gc=False, kw_only=True):
    """A taint."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(_Object, frozen=True, gc=False, kw_only=True):
    """What a node admits."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class NodeAddress(_Object, frozen=True, gc=False, kw_only=True):
    """One address of a node."""

    type: str
    address: str


class NodeStatus(_Object, frozen=True, gc=False, kw_only=True):
    """What a node offers."""

    allocatable: dict[str, str] = {}
    conditions: tuple[StatusCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class ClusterNode(_Object, frozen=True, gc=False, kw_only=True):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ListMetadata(_Object, frozen=True, gc=False, kw_only=True):
    """The resource version of a list, and the token of its next page."""

    resource_version: str = "0"
    # ``continue`` in JSON, a keyword in Python.
    next_page: str = msgspec.field(default="", name="continue")


class ObjectList(_Object, Generic[T], frozen=True, gc=False, kw_only=True):
    """A page of a list; ``items`` may be null in an empty one."""

    metadata: ListMetadata = ListMetadata()
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Status(_Object, frozen=True, gc=False, kw_only=True):
    """The API server's explanation of a failed request."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Bookmark(_Object, frozen=True, gc=False, kw_only=True):
    """The progress of a watch."""

    metadata: ObjectMeta


MAGIC = b"k8s\0"
"""The prefix of an object in protobuf, which no JSON begins with."""

M = TypeVar("M", bound=Message)
_Amounts = dict[str, str]


class ProtobufError(Exception):
    """Bytes that are not the expected protobuf message."""


def decode_watch_event(data: bytes) -> tuple[str, bytes]:
    """Return the type of a watch event, and its encoded object."""
    event = _parsed(pb.WatchEvent, data)
    return event.type, event.object.raw


def decode_identity(data: bytes) -> tuple[str, str]:
    """Return the uid and the resource version of an encoded object."""
    found = _parsed(pb.UnknownIdentified, _without_prefix(data)).raw.metadata
    if not found.resource_version.isdecimal():
        raise ProtobufError("the object has no resource version")
    return found.uid, found.resource_version


def decode_status(data: bytes) -> Status:
    """The API server's explanation of a failed request."""
    found = _parsed(pb.UnknownStatus, _without_prefix(data)).raw
    return Status(code=found.code, reason=_text(found.reason), message=_text(found.message))


def decode_pod(data: bytes) -> Pod:
    """Return a pod."""
    found = _parsed(pb.UnknownPod, _without_prefix(data)).raw
    return Pod(metadata=_metadata(found.metadata), spec=_spec(found.spec), status=_status(found.status))


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ProtobufError(str(error)) from error


def _without_prefix(data: bytes) -> bytes:
    if not data.startswith(MAGIC):
        raise ProtobufError("the object does not begin with the protobuf prefix")
    return data[len(MAGIC) :]


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


@lru_cache(maxsize=4096)
def _timestamp(seconds: int) -> str:
    if not seconds:
        return ""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError) as error:
        raise ProtobufError(f"{seconds} s is not a valid timestamp") from error


def _amounts(quantities: Mapping[str, pb.Quantity]) -> _Amounts:
    return {name: quantity.string for name, quantity in quantities.items()}


def _resources(message: pb.ResourceRequirements) -> dict[str, _Amounts]:
    resources: dict[str, _Amounts] = {}
    if limits := _amounts(message.limits):
        resources["limits"] = limits
    if requests := _amounts(message.requests):
        resources["requests"] = requests
    return resources


def _metadata(message: pb.ObjectMeta) -> ObjectMeta:
    return ObjectMeta(
        name=message.name,
        namespace=message.namespace,
        uid=message.uid,
        resource_version=message.resource_version,
        labels=dict(message.labels),
        annotations={name: _text(value) for name, value in message.annotations.items()},
        finalizers=tuple(message.finalizers),
        deletion_timestamp=_timestamp(message.deletion_timestamp.seconds),
        deletion_grace_period_seconds=(
            message.deletion_grace_period_seconds
            if message.HasField("deletion_grace_period_seconds")
            else None
        ),
        creation_timestamp=_timestamp(message.creation_timestamp.seconds),
    )


def _containers(message: Iterable[pb.Container]) -> tuple[Container, ...]:
    return tuple(
        Container(name=one.name, restart_policy=one.restart_policy, resources=_resources(one.resources))
        for one in message
    )


def _spec(message: pb.PodSpec) -> PodSpec:
    return PodSpec(
        node_name=message.node_name,
        containers=_containers(message.containers),
        init_containers=_containers(message.init_containers),
        overhead=_amounts(message.overhead),
        resources=_resources(message.resources),
    )


def _status(message: pb.PodStatus) -> PodStatus:
    return PodStatus(
        phase=message.phase,
        reason=_text(message.reason),
        message=_text(message.message),
        conditions=tuple(
            StatusCondition(
                type=one.type,
                status=one.status,
                reason=_text(one.reason),
                message=_text(one.message),
                last_transition_time=_timestamp(one.last_transition_time.seconds) or None,
            )
            for one in message.conditions
        ),
        container_statuses=_container_statuses(message.container_statuses),
        init_container_statuses=_container_statuses(message.init_container_statuses),
    )


def _container_statuses(message: Iterable[pb.ContainerStatus]) -> tuple[ContainerStatus, ...]:
    return tuple(ContainerStatus(name=one.name, state=_state(one.state)) for one in message)


def _state(message: pb.ContainerState) -> ContainerState:
    waiting = running = terminated = None
    if message.HasField("waiting"):
        waiting = Waiting(reason=_text(message.waiting.reason), message=_text(message.waiting.message))
    if message.HasField("running"):
        running = Running(started_at=_timestamp(message.running.started_at.seconds) or None)
    if message.HasField("terminated"):
        terminated = _terminated(message.terminated)
    return ContainerState(waiting=waiting, running=running, terminated=terminated)


def _terminated(message: pb.ContainerStateTerminated) -> Terminated:
    return Terminated(
        exit_code=message.exit_code,
        signal=message.signal,
        reason=_text(message.reason),
        message=_text(message.message),
        started_at=_timestamp(message.started_at.seconds) or None,
        finished_at=_timestamp(message.finished_at.seconds) or None,
    )
