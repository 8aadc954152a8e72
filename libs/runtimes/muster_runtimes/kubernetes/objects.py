"""The parts of Kubernetes' objects that the runtime reads; everything else is skipped while decoding."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class _Object(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Base: fields are camel case in JSON."""


class Metadata(_Object, frozen=True, gc=False, kw_only=True):
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


class Condition(_Object, frozen=True, gc=False, kw_only=True):
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
    conditions: tuple[Condition, ...] = ()
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

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Anchor(_Object, frozen=True, gc=False, kw_only=True):
    """What is read of everything else: its metadata."""

    metadata: Metadata


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
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class ClusterNode(_Object, frozen=True, gc=False, kw_only=True):
    """A node."""

    metadata: Metadata
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

    metadata: Metadata
