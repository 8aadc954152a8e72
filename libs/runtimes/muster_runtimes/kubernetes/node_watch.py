"""The nodes of the cluster as they are now, and what others use of them.

Every copy watches the nodes, to know which of them are away. The pods of others are watched by the one copy that reports nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from muster_core.models import Node, Resources
from muster_runtimes.kubernetes.api import Api
from muster_runtimes.kubernetes.events import PROTOBUF_EVENTS
from muster_runtimes.kubernetes.labels import of_others
from muster_runtimes.kubernetes.nodes import Foreign, gpu_resource_of, read_node
from muster_runtimes.kubernetes.objects import ClusterNode, Pod
from muster_runtimes.kubernetes.reflector import Collection, Reflector
from muster_runtimes.kubernetes.states import ready_condition

_TOGETHER_S = 0.2
_HOLDING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class NodeWatch:
    """``moved`` is told of a node that has come, gone, or been heard of or not."""

    def __init__(self, *, api: Api, pool: str, selector: str, moved: Callable[[str], None]) -> None:
        self._moved = moved
        self._foreign = Foreign()
        self._known: dict[str, Node] = {}
        self._stale: set[str] = set()
        self._knows_others = False
        self._objects: dict[str, ClusterNode] = {}
        self._gpu_resource: str | None = None
        self._something = asyncio.Event()
        self._nodes = Reflector(
            api=api,
            collection=Collection(path="/api/v1/nodes", labels=selector),
            kind=ClusterNode,
            changed=self._node_changed,
        )
        others = Collection(
            path="/api/v1/pods", labels=of_others(pool), fields=_HOLDING, event_type=PROTOBUF_EVENTS
        )
        self._others = Reflector(api=api, collection=others, kind=Pod, changed=self._pod_changed)

    async def run(self) -> None:
        """Watch the nodes until cancelled."""
        await self._nodes.run()

    async def synced(self) -> None:
        """Wait until all nodes are known."""
        await self._nodes.synced.wait()

    def is_away(self, name: str) -> bool:
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
                self._known[name] = read_node(self._objects[name], self._foreign)
            else:
                self._known.pop(name, None)
        self._stale.clear()
        return tuple(self._known.values())

    def is_overfull(self, name: str, ours: Resources) -> bool:
        """Whether a node does not offer this beside what others use; False where this copy does not know what they use."""
        if not self._knows_others or name not in self._objects:
            return False
        node = read_node(self._objects[name], self._foreign)
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
        if was_away != self.is_away(name):
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
