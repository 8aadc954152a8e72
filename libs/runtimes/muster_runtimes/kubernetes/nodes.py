"""The nodes of the pool: an informer for them and for the pods of others on them, and the conversion to the model's nodes.

Every instance watches the nodes, to know which of them are unavailable. Only the instance that reports nodes watches the pods of
others, and those of orphans, which count as others' until they are adopted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

from muster_core.models import Node, Resources, Taint
from muster_core.quantities import QuantityError, parse_quantity
from muster_formats.pods import (
    GPU_NAMES,
    Amounts,
    ContainerResources,
    pod_resources,
    resource_type,
    to_resources,
)
from muster_runtimes.kubernetes.api_client import ApiClient
from muster_runtimes.kubernetes.labels import of_orphans, of_others
from muster_runtimes.kubernetes.objects import ClusterNode, Container, Pod, PodSpec
from muster_runtimes.kubernetes.pod_status import is_ready
from muster_runtimes.kubernetes.reflector import PROTOBUF_EVENTS, Reflector, WatchTarget

_COALESCE_S = 0.2
_HOLDS_RESOURCES = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_GPU_MEMORY_LABELS = ("nvidia.com/gpu.memory", "amd.com/gpu.memory")
_MIB = 1024 * 1024
_PODS = "pods"


def parse_resource_list(quantities: Mapping[str, object]) -> dict[str, int]:
    """Return the amounts of a resource list; resources without a meaning for placement and invalid quantities are left out."""
    amounts: dict[str, int] = {}
    for key, quantity in quantities.items():
        name, parse, _ = resource_type(key)
        if not name:
            continue
        try:
            amounts[name] = amounts.get(name, 0) + parse(quantity)
        except QuantityError:
            continue
    return amounts


def pod_requests(spec: PodSpec) -> Resources:
    """Return the resources that a pod takes of its node, by Kubernetes' rules for init containers, sidecars and overhead."""
    pod_level = _claim(spec.resources)
    mains = _claims(spec.containers, pod_level.requests)
    inits = _claims(spec.init_containers, pod_level.requests)
    requests, _ = pod_resources([*mains, pod_level], inits, parse_resource_list(spec.overhead))
    return requests


def sum_resources(parts: Iterable[Resources]) -> Resources:
    """Return the sum."""
    added = Resources()
    for part in parts:
        added += part
    return added


def _claims(containers: Sequence[Container], pod_level: Amounts) -> list[ContainerResources]:
    claims: list[ContainerResources] = []
    for container in containers:
        claim = _claim(container.resources, sidecar=container.restart_policy == "Always")
        # A pod-level request replaces the requests of the containers.
        kept = {name: amount for name, amount in claim.requests.items() if name not in pod_level}
        claims.append(ContainerResources(kept, claim.limits, claim.sidecar))
    return claims


def _claim(resources: Mapping[str, Any], *, sidecar: bool = False) -> ContainerResources:
    limits = parse_resource_list(resources.get("limits") or {})
    return ContainerResources(
        {**limits, **parse_resource_list(resources.get("requests") or {})}, limits, sidecar
    )


class ForeignUsage:
    """What the pods of others use of each node, updated pod by pod."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Resources]] = {}
        self._by_node: dict[str, set[str]] = {}

    def add(self, pod: Pod) -> str:
        """Count a pod, and return the node whose usage has changed (empty: none)."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        usage = (node, pod_requests(pod.spec))
        if self._pods.get(uid) == usage:
            return ""
        self.remove(uid)
        self._pods[uid] = usage
        self._by_node.setdefault(node, set()).add(uid)
        return node

    def remove(self, uid: str) -> str:
        """Stop counting a pod, and return the node whose usage has changed (empty: none)."""
        node, _ = self._pods.pop(uid, ("", None))
        if node:
            self._by_node[node].discard(uid)
            if not self._by_node[node]:
                del self._by_node[node]
        return node

    def of(self, node: str) -> tuple[Resources, int]:
        """Return what is used of a node, and by how many pods."""
        uids = self._by_node.get(node, set())
        return sum_resources(self._pods[uid][1] for uid in uids), len(uids)


def to_node(node: ClusterNode, foreign: ForeignUsage) -> Node:
    """Convert a cluster's node to the model's."""
    name = node.metadata.name
    used, pods = foreign.of(name)
    allocatable = {key: text for key, text in node.status.allocatable.items() if key != _PODS}
    addresses = {address.type: address.address for address in node.status.addresses}
    return Node(
        name=name,
        allocatable=to_resources(parse_resource_list(allocatable)),
        foreign=used,
        pods=max(_amount(node.status.allocatable.get(_PODS, "110")) - pods, 0),
        gpu_memory=_gpu_memory(node.metadata.labels),
        labels=node.metadata.labels,
        taints=tuple(
            Taint(key=taint.key, value=taint.value, effect=taint.effect) for taint in node.spec.taints
        ),
        ready=is_ready(node.status.conditions),
        unschedulable=node.spec.unschedulable,
        address=addresses.get("InternalIP", ""),
    )


def gpu_resource_of(nodes: Iterable[ClusterNode]) -> str:
    """Return the resource name of the nodes' GPUs; ``nvidia.com/gpu`` if no node has any."""
    offered = {name for node in nodes for name in node.status.allocatable if name in GPU_NAMES}
    return min(offered, default="nvidia.com/gpu")


def _gpu_memory(labels: Mapping[str, str]) -> int:
    """Return the memory of each GPU in bytes; the feature-discovery labels have MiB."""
    text = next((labels[label] for label in _GPU_MEMORY_LABELS if label in labels), "")
    return int(text) * _MIB if text.isdecimal() else 0


def _amount(quantity: str) -> int:
    try:
        return parse_quantity(quantity)
    except QuantityError:
        return 0


class NodeInformer:
    """Watches the nodes; ``on_availability_change`` receives the name of a node that appeared, disappeared or changed its readiness."""

    def __init__(
        self, *, api: ApiClient, pool: str, selector: str, on_availability_change: Callable[[str], None]
    ) -> None:
        self._on_availability_change = on_availability_change
        self._foreign = ForeignUsage()
        self._nodes: dict[str, Node] = {}
        self._stale: set[str] = set()
        self._knows_foreign = False
        self._objects: dict[str, ClusterNode] = {}
        self._gpu_resource: str | None = None
        self._changed = asyncio.Event()
        self._node_reflector = Reflector(
            api=api,
            target=WatchTarget(path="/api/v1/nodes", labels=selector),
            kind=ClusterNode,
            on_change=self._on_node_change,
        )
        self._pod_reflectors = [
            Reflector(
                api=api,
                target=WatchTarget(
                    path="/api/v1/pods",
                    labels=selector,
                    fields=_HOLDS_RESOURCES,
                    event_type=PROTOBUF_EVENTS,
                ),
                kind=Pod,
                on_change=self._on_foreign_pod_change,
            )
            for selector in (of_others(pool), of_orphans(pool))
        ]

    async def run(self) -> None:
        """Watch the nodes until cancelled."""
        await self._node_reflector.run()

    async def synced(self) -> None:
        """Wait until all nodes are known."""
        await self._node_reflector.synced.wait()

    def is_unavailable(self, name: str) -> bool:
        """Whether a node is deleted or not ready."""
        if not self._node_reflector.synced.is_set():
            return False
        node = self._objects.get(name)
        return node is None or not is_ready(node.status.conditions)

    def uid(self, name: str) -> str:
        """Return the uid of a node; empty if there is no such node."""
        node = self._objects.get(name)
        return node.metadata.uid if node else ""

    def gpu_resource(self) -> str:
        """Return the resource name of GPUs in this cluster."""
        if self._gpu_resource is None:
            self._gpu_resource = gpu_resource_of(self._objects.values())
        return self._gpu_resource

    def nodes(self) -> Sequence[Node]:
        """Return all nodes, with what others use of each."""
        for name in self._stale:
            if name in self._objects:
                self._nodes[name] = to_node(self._objects[name], self._foreign)
            else:
                self._nodes.pop(name, None)
        self._stale.clear()
        return tuple(self._nodes.values())

    def lacks_capacity(self, name: str, ours: Resources) -> bool:
        """Whether a node cannot hold ``ours`` beside what others use; False if this instance does not know what others use."""
        if not self._knows_foreign or name not in self._objects:
            return False
        node = to_node(self._objects[name], self._foreign)
        return not (node.foreign + ours).fits_in(node.allocatable)

    async def changes(self) -> AsyncIterator[None]:
        """Yield once when all nodes are known, and after changes of ``nodes``; changes close together count as one."""
        watching = [asyncio.create_task(reflector.run()) for reflector in self._pod_reflectors]
        try:
            await self._node_reflector.synced.wait()
            for reflector in self._pod_reflectors:
                await reflector.synced.wait()
            self._changed.set()
            self._knows_foreign = True
            while True:
                await self._changed.wait()
                self._changed.clear()
                yield
                await asyncio.sleep(_COALESCE_S)
        finally:
            self._knows_foreign = False
            for task in watching:
                task.cancel()

    def _on_node_change(self, before: ClusterNode | None, after: ClusterNode | None) -> None:
        node = after or before
        if node is None:
            return
        name = node.metadata.name
        if before is None or after is None or before.status.allocatable != after.status.allocatable:
            self._gpu_resource = None
        was_unavailable = name not in self._objects or not is_ready(self._objects[name].status.conditions)
        if after is not None:
            self._objects[name] = after
        elif name in self._objects and self._objects[name].metadata.uid == node.metadata.uid:
            del self._objects[name]
        self._mark_stale(name)
        if was_unavailable != self.is_unavailable(name):
            self._on_availability_change(name)

    def _on_foreign_pod_change(self, before: Pod | None, after: Pod | None) -> None:
        if after is not None:
            self._mark_stale(self._foreign.add(after))
        elif before is not None:
            self._mark_stale(self._foreign.remove(before.metadata.uid))

    def _mark_stale(self, name: str) -> None:
        if name:
            self._stale.add(name)
            self._changed.set()
