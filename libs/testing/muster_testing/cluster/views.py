"""The parts of Kubernetes objects that tests read."""

import msgspec


class Metadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Metadata of an object."""

    name: str
    uid: str = ""
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str | None = None
    resource_version: str = ""


class Terminated(msgspec.Struct, frozen=True, rename="camel"):
    """The end of a container."""

    exit_code: int
    reason: str = ""


class ContainerState(msgspec.Struct, frozen=True):
    """The state of a container; at most one field is not None."""

    waiting: dict[str, str] | None = None
    running: dict[str, str] | None = None
    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True):
    """A container's name and state."""

    name: str
    state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(name="podIP", default="")
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The node of a pod."""

    node_name: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = PodStatus()

    @property
    def exit_code(self) -> int | None:
        """The exit code of the first container; None before its end."""
        first = self.status.container_statuses[:1]
        return next((each.state.terminated.exit_code for each in first if each.state.terminated), None)


class Condition(msgspec.Struct, frozen=True):
    """A condition of a node."""

    type: str
    status: str
    reason: str = ""


class Taint(msgspec.Struct, frozen=True):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, frozen=True):
    """The taints and schedulability of a node."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(msgspec.Struct, frozen=True):
    """The capacity and the conditions of a node."""

    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether the node is ready, and the control plane has removed the not-ready taint."""
        held = any(taint.key.startswith("node.kubernetes.io/") for taint in self.spec.taints)
        return not held and any(
            each.type == "Ready" and each.status == "True" for each in self.status.conditions
        )


class Named(msgspec.Struct, frozen=True):
    """The metadata of an object of any kind."""

    metadata: Metadata
