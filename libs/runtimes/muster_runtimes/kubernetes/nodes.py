"""A cluster's nodes as the model knows them, with what others use of each: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster_core.models import Node, Resources, Taint
from muster_core.quantities import QuantityError, parse_quantity
from muster_formats.pods.resource_lists import GPU_NAMES
from muster_runtimes.kubernetes.objects import ClusterNode, Pod
from muster_runtimes.kubernetes.requests import read_resources, requests_of, total
from muster_runtimes.kubernetes.states import ready_condition

_GPU_MEMORY_LABELS = ("nvidia.com/gpu.memory", "amd.com/gpu.memory")
_MIB = 1024 * 1024
_PODS = "pods"


class Foreign:
    """What others use of each node: their pods, one by one, so that each that comes or goes costs the same."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[str, Resources]] = {}
        self._on: dict[str, set[str]] = {}

    def put(self, pod: Pod) -> str:
        """Count a pod; the node whose use has changed (empty: none)."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        use = (node, requests_of(pod.spec))
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
        return total(self._pods[uid][1] for uid in uids), len(uids)


def read_node(node: ClusterNode, foreign: Foreign) -> Node:
    """A node as it is placed upon."""
    name = node.metadata.name
    used, pods = foreign.of(name)
    allocatable = {key: text for key, text in node.status.allocatable.items() if key != _PODS}
    addresses = {address.type: address.address for address in node.status.addresses}
    return Node(
        name=name,
        allocatable=read_resources(allocatable),
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
