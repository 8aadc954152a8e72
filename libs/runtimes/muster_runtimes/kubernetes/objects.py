"""DOC."""

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
    """Who an object is. Versions of one server are decimal numbers that grow."""

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
        """The version as a number."""
        return int(self.resource_version or 0)


class Waiting(_Object, frozen=True, gc=False, kw_only=True):
    """A container that does not run yet."""

    reason: str = ""
    message: str = ""


class Running(_Object, frozen=True, gc=False, kw_only=True):
    """A container that runs."""

    started_at: str | None = None


class Terminated(_Object, frozen=True, gc=False, kw_only=True):
    """A container that has ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_Object, frozen=True, gc=False, kw_only=True):
    """One of the three."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(_Object, frozen=True, gc=False, kw_only=True):
    """Where one container stands."""

    name: str = ""
    state: ContainerState = ContainerState()


class StatusCondition(_Object, frozen=True, gc=False, kw_only=True):
    """A condition in Kubernetes' manner."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodStatus(_Object, frozen=True, gc=False, kw_only=True):
    """Where a pod stands."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[StatusCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Container(_Object, frozen=True, gc=False, kw_only=True):
    """What a container asks for."""

    name: str = ""
    restart_policy: str = ""
    resources: dict[str, Any] = {}


class PodSpec(_Object, frozen=True, gc=False, kw_only=True):
    """Where a pod stands and what it asks for."""

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
    """What is read of everything else: its metadata."""

    metadata: ObjectMeta


class NodeTaint(_Object, frozen=True, gc=False, kw_only=True):
    """A taint."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(_Object, frozen=True, gc=False, kw_only=True):
    """Whom a node admits."""

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
    """Of which instant a list is, and where it goes on."""

    resource_version: str = "0"
    # ``continue`` in JSON, which is no name in Python.
    next_page: str = msgspec.field(default="", name="continue")


class ObjectList(_Object, Generic[T], frozen=True, gc=False, kw_only=True):
    """A page of a list; one without items may say null."""

    metadata: ListMetadata = ListMetadata()
    items: list[T] | None = None


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class Status(_Object, frozen=True, gc=False, kw_only=True):
    """What the API server says of a request that it did not do."""

    code: int = 0
    reason: str = ""
    message: str = ""


class Bookmark(_Object, frozen=True, gc=False, kw_only=True):
    """How far a watch has got."""

    metadata: ObjectMeta


MAGIC = b"k8s\0"
"""What an object in protobuf begins with, so that it cannot be taken for JSON."""

M = TypeVar("M", bound=Message)
_Amounts = dict[str, str]


class ProtobufError(Exception):
    """Bytes that are not what they should be."""


def decode_watch_event(data: bytes) -> tuple[str, bytes]:
    """The type of a watch's event, and its object."""
    event = _parsed(pb.WatchEvent, data)
    return event.type, event.object.raw


def decode_identity(data: bytes) -> tuple[str, str]:
    """The uid and the version of an object."""
    found = _parsed(pb.UnknownIdentified, _inner(data)).raw.metadata
    if not found.resource_version.isdecimal():
        raise ProtobufError("an object without a version")
    return found.uid, found.resource_version


def decode_status(data: bytes) -> Status:
    """What the API server says of a request that it did not do."""
    found = _parsed(pb.UnknownStatus, _inner(data)).raw
    return Status(code=found.code, reason=_text(found.reason), message=_text(found.message))


def decode_pod(data: bytes) -> Pod:
    """A pod."""
    found = _parsed(pb.UnknownPod, _inner(data)).raw
    return Pod(metadata=_metadata(found.metadata), spec=_spec(found.spec), status=_status(found.status))


def _parsed(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ProtobufError(str(error)) from error


def _inner(data: bytes) -> bytes:
    if not data.startswith(MAGIC):
        raise ProtobufError("an object without its prefix")
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
        raise ProtobufError(f"an instant of {seconds} s") from error


def _amounts(quantities: Mapping[str, pb.Quantity]) -> _Amounts:
    return {name: quantity.string for name, quantity in quantities.items()}


def _resources(said: pb.ResourceRequirements) -> dict[str, _Amounts]:
    resources: dict[str, _Amounts] = {}
    if limits := _amounts(said.limits):
        resources["limits"] = limits
    if requests := _amounts(said.requests):
        resources["requests"] = requests
    return resources


def _metadata(said: pb.ObjectMeta) -> ObjectMeta:
    return ObjectMeta(
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
            StatusCondition(
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
