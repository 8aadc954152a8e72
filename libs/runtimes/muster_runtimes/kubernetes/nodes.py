"""DOC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from muster_core.models import GPU_MILLI, Node, Resources, Taint
from muster_core.quantities import QuantityError, format_bytes, format_cpu, parse_quantity
from muster_formats.pods.resource_lists import (
    GPU_NAMES,
    Amounts,
    Claim,
    add_up,
    kind_of_resource,
    to_resources,
)
from muster_runtimes.kubernetes.api_client import ApiClient
from muster_runtimes.kubernetes.labels import of_others
from muster_runtimes.kubernetes.objects import ClusterNode, Container, Pod, PodSpec
from muster_runtimes.kubernetes.pod_status import ready_condition
from muster_runtimes.kubernetes.reflector import PROTOBUF_EVENTS, Reflector, WatchTarget


def parse_resource_list(quantities: Mapping[str, object]) -> dict[str, int]:
    """The amounts of a resource list; what has no meaning for placement, or cannot be read, is left out."""
    amounts: dict[str, int] = {}
    for key, quantity in quantities.items():
        name, parse, _ = kind_of_resource(key)
        if not name:
            continue
        try:
            amounts[name] = amounts.get(name, 0) + parse(quantity)
        except QuantityError:
            continue
    return amounts


def parse_resources(quantities: Mapping[str, object]) -> Resources:
    """The same as the model's resources."""
    return to_resources(parse_resource_list(quantities))


def pod_requests(spec: PodSpec) -> Resources:
    """What a pod takes of its node, as Kubernetes counts it."""
    whole = _claim(spec.resources)
    mains = _claims(spec.containers, whole.requests)
    inits = _claims(spec.init_containers, whole.requests)
    requests, _ = add_up([*mains, whole], inits, parse_resource_list(spec.overhead))
    return requests


def format_resource_list(resources: Resources, *, gpu_resource: str) -> dict[str, str]:
    """The resource list of some amounts, what is 0 left out; GPUs under the name that the cluster's device plug-in gives them."""
    said = {
        "cpu": format_cpu(resources.cpu) if resources.cpu else "",
        "memory": format_bytes(resources.memory) if resources.memory else "",
        "ephemeral-storage": format_bytes(resources.ephemeral_storage) if resources.ephemeral_storage else "",
        gpu_resource: str(resources.gpu // GPU_MILLI) if resources.gpu else "",
        **{name: str(amount) for name, amount in resources.extended.items() if amount},
    }
    return {name: quantity for name, quantity in said.items() if quantity}


def sum_resources(parts: Iterable[Resources]) -> Resources:
    """The sum."""
    added = Resources()
    for part in parts:
        added += part
    return added


def _claims(containers: Sequence[Container], stated: Amounts) -> list[Claim]:
    claims: list[Claim] = []
    for container in containers:
        claim = _claim(container.resources, sidecar=container.restart_policy == "Always")
        # What the pod as a whole has stated counts alone.
        kept = {name: amount for name, amount in claim.requests.items() if name not in stated}
        claims.append(Claim(kept, claim.limits, claim.sidecar))
    return claims


def _claim(resources: Mapping[str, Any], *, sidecar: bool = False) -> Claim:
    limits = parse_resource_list(resources.get("limits") or {})
    return Claim({**limits, **parse_resource_list(resources.get("requests") or {})}, limits, sidecar)


_GPU_MEMORY_LABELS = ("nvidia.com/gpu.memory", "amd.com/gpu.memory")
_MIB = 1024 * 1024
_PODS = "pods"


class ForeignUsage:
    """What others use of each node: their pods, one by one, so that each that comes or goes costs the same."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Resources]] = {}
        self._on: dict[str, set[str]] = {}

    def put(self, pod: Pod) -> str:
        """Count a pod; the node whose use has changed (empty: none)."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        use = (node, pod_requests(pod.spec))
        if self._pods.get(uid) == use:
            return ""
        self.drop(uid)
        self._pods[uid] = use
        self._on.setdefault(node, set()).add(uid)
        return node

    def drop(self, uid: str) -> str:
        """Count a pod no more; the node whose use has changed (empty: none)."""
        node, _ = self._pods.pop(uid, ("", None))
        if node:
            self._on[node].discard(uid)
            if not self._on[node]:
                del self._on[node]
        return node

    def keep(self, uids: Iterable[str]) -> None:
        """Count these and no others."""
        for uid in self._pods.keys() - set(uids):
            self.drop(uid)

    def of(self, node: str) -> tuple[Resources, int]:
        """What is used of a node, and by how many pods."""
        uids = self._on.get(node, set())
        return sum_resources(self._pods[uid][1] for uid in uids), len(uids)


def to_node(node: ClusterNode, foreign: ForeignUsage) -> Node:
    """A node as it is placed upon."""
    name = node.metadata.name
    used, pods = foreign.of(name)
    allocatable = {key: text for key, text in node.status.allocatable.items() if key != _PODS}
    addresses = {address.type: address.address for address in node.status.addresses}
    return Node(
        name=name,
        allocatable=parse_resources(allocatable),
        foreign=used,
        pods=max(_amount(node.status.allocatable.get(_PODS, "110")) - pods, 0),
        gpu_memory=_gpu_memory(node.metadata.labels),
        labels=node.metadata.labels,
        taints=tuple(
            Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in node.spec.taints
        ),
        ready=ready_condition(node.status.conditions),
        unschedulable=node.spec.unschedulable,
        address=addresses.get("InternalIP", ""),
    )


def gpu_resource_of(nodes: Iterable[ClusterNode]) -> str:
    """The name under which the nodes offer GPUs; the usual one where none does."""
    offered = {name for node in nodes for name in node.status.allocatable if name in GPU_NAMES}
    return min(offered, default="nvidia.com/gpu")


def _gpu_memory(labels: Mapping[str, str]) -> int:
    """Of each GPU, in bytes; the plug-ins' discovery says it in MiB."""
    said = next((labels[label] for label in _GPU_MEMORY_LABELS if label in labels), "")
    return int(said) * _MIB if said.isdecimal() else 0


def _amount(quantity: str) -> int:
    try:
        return parse_quantity(quantity)
    except QuantityError:
        return 0


_TOGETHER_S = 0.2
_HOLDING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class NodeInformer:
    """``moved`` is told of a node that has come, gone, or been heard of or not."""

    def __init__(self, *, api: ApiClient, pool: str, selector: str, moved: Callable[[str], None]) -> None:
        self._moved = moved
        self._foreign = ForeignUsage()
        self._known: dict[str, Node] = {}
        self._stale: set[str] = set()
        self._knows_others = False
        self._objects: dict[str, ClusterNode] = {}
        self._gpu_resource: str | None = None
        self._something = asyncio.Event()
        self._nodes = Reflector(
            api=api,
            target=WatchTarget(path="/api/v1/nodes", labels=selector),
            kind=ClusterNode,
            changed=self._node_changed,
        )
        others = WatchTarget(
            path="/api/v1/pods", labels=of_others(pool), fields=_HOLDING, event_type=PROTOBUF_EVENTS
        )
        self._others = Reflector(api=api, target=others, kind=Pod, changed=self._pod_changed)

    async def run(self) -> None:
        """Watch the nodes until cancelled."""
        await self._nodes.run()

    async def synced(self) -> None:
        """Wait until all nodes are known."""
        await self._nodes.synced.wait()

    def is_unavailable(self, name: str) -> bool:
        """Whether a node is not there, or not heard of."""
        if not self._nodes.synced.is_set():
            return False
        node = self._objects.get(name)
        return node is None or not ready_condition(node.status.conditions)

    def uid(self, name: str) -> str:
        """The uid of a node; empty where it is not there."""
        node = self._objects.get(name)
        return node.metadata.uid if node else ""

    def gpu_resource(self) -> str:
        """What GPUs are called here."""
        if self._gpu_resource is None:
            self._gpu_resource = gpu_resource_of(self._objects.values())
        return self._gpu_resource

    def nodes(self) -> Sequence[Node]:
        """All nodes, with what others use of each."""
        for name in self._stale:
            if name in self._objects:
                self._known[name] = to_node(self._objects[name], self._foreign)
            else:
                self._known.pop(name, None)
        self._stale.clear()
        return tuple(self._known.values())

    def lacks_capacity(self, name: str, ours: Resources) -> bool:
        """Whether a node does not offer this beside what others use; False where this copy does not know what they use."""
        if not self._knows_others or name not in self._objects:
            return False
        node = to_node(self._objects[name], self._foreign)
        return not (node.foreign + ours).fits_in(node.allocatable)

    async def changes(self) -> AsyncIterator[None]:
        """Whenever something of ``nodes`` has changed, and at once when all is known; changes close together are one."""
        watching = asyncio.create_task(self._others.run())
        try:
            await self._nodes.synced.wait()
            await self._others.synced.wait()
            self._something.set()
            self._knows_others = True
            while True:
                await self._something.wait()
                self._something.clear()
                yield
                await asyncio.sleep(_TOGETHER_S)
        finally:
            self._knows_others = False
            watching.cancel()

    def _node_changed(self, before: ClusterNode | None, after: ClusterNode | None) -> None:
        node = after or before
        if node is None:
            return
        name = node.metadata.name
        if before is None or after is None or before.status.allocatable != after.status.allocatable:
            self._gpu_resource = None
        was_away = name not in self._objects or not ready_condition(self._objects[name].status.conditions)
        if after is not None:
            self._objects[name] = after
        elif name in self._objects and self._objects[name].metadata.uid == node.metadata.uid:
            del self._objects[name]
        self._touch(name)
        if was_away != self.is_unavailable(name):
            self._moved(name)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        if after is not None:
            self._touch(self._foreign.put(after))
        elif before is not None:
            self._touch(self._foreign.drop(before.metadata.uid))

    def _touch(self, name: str) -> None:
        if name:
            self._stale.add(name)
            self._something.set()
