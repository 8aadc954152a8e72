"""What each node offers, on the bus: told by one copy at a time, where the last word on a node differs.

Two copies may for a moment both take themselves for the one. What each says of a node is stored only if nobody has said anything of it
since this copy last looked: whoever is behind is refused, and looks again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection

import msgspec

from muster_bus import Bus, BusUnavailable, NotFound, WrongSequence
from muster_bus.messages import Outgoing
from muster_bus.reader import read_last_values
from muster_core.events import NodeChanged
from muster_core.models import Node
from muster_events.catalogue import NODES_STREAM, POD_LAUNCHER
from muster_events.codec import UnreadableEvent, pool_message, read_pool_event
from muster_events.subjects import pool_nodes
from muster_runtimes import Runtime
from muster_service.logs import fields

log = logging.getLogger(__name__)

_PAUSE_S = 1.0
_TOGETHER = 64


class _Word(msgspec.Struct, frozen=True):
    """The last word on a node: what was said, at which sequence; ``node`` is None where it said that the node has gone."""

    data: bytes
    sequence: int
    node: Node | None


class NodeReports:
    """Reports the nodes of ``runtime`` as those of ``pool``."""

    def __init__(self, *, bus: Bus, runtime: Runtime, pool: str) -> None:
        self._bus = bus
        self._runtime = runtime
        self._pool = pool
        self._told: dict[str, _Word] = {}
        self._settled: dict[str, Node] = {}
        self.up_to_date = asyncio.Event()

    async def run(self) -> None:
        """Report until cancelled, or until the nodes can change no more; ``up_to_date`` is set once all is told."""
        is_read = False
        async for _ in self._runtime.node_changes():
            while True:
                try:
                    if not is_read:
                        await self._read()
                        is_read = True
                    await self._report()
                    break
                except WrongSequence:
                    is_read = False
                except (BusUnavailable, NotFound) as error:
                    log.warning("nodes cannot be reported yet: %s", error)
                    is_read = False
                    await asyncio.sleep(_PAUSE_S)
            self.up_to_date.set()

    async def _read(self) -> None:
        last = await read_last_values(self._bus, NODES_STREAM, pool_nodes(self._pool))
        self._told = {
            word.subject: _Word(word.data, word.stream_sequence, _node_of(word.subject, word.data))
            for word in last
        }
        self._settled.clear()

    async def _report(self) -> None:
        nodes = {node.name: node for node in self._runtime.nodes()}
        # Most nodes have not changed: the runtime then answers with the same object, which need not be put into words again.
        fresh = [node for node in nodes.values() if self._settled.get(node.name) is not node]
        news = [self._message(node) for node in fresh]
        news += [self._message(node, gone=True) for node in self._left(nodes.keys())]
        changed = [message for message in news if self._is_news(message)]
        for first in range(0, len(changed), _TOGETHER):
            told = await asyncio.gather(
                *map(self._tell, changed[first : first + _TOGETHER]), return_exceptions=True
            )
            for failure in told:
                if isinstance(failure, BaseException):
                    raise failure
        self._settled = nodes

    def _message(self, node: Node, *, gone: bool = False) -> Outgoing:
        return pool_message(NodeChanged(pool=self._pool, node=node, gone=gone), source=POD_LAUNCHER)

    def _is_news(self, message: Outgoing) -> bool:
        word = self._told.get(message.subject)
        return word is None or word.data != message.data

    def _left(self, names: Collection[str]) -> list[Node]:
        known = [word.node for word in self._told.values() if word.node is not None]
        return [node for node in known if node.name not in names]

    async def _tell(self, message: Outgoing) -> None:
        last = self._told[message.subject].sequence if message.subject in self._told else 0
        # What is told may be what was told before, some time ago: the sequence makes it news of its own.
        digest = hashlib.blake2b(message.data, digest_size=8).hexdigest()
        message = msgspec.structs.replace(
            message, expected_last=last, msg_id=f"{message.subject}/{last}/{digest}"
        )
        published = await self._bus.publish_once(message)
        self._told[message.subject] = _Word(
            message.data, published.sequence, _node_of(message.subject, message.data)
        )
        log.info("node reported", extra=fields(subject=message.subject))


def _node_of(subject: str, data: bytes) -> Node | None:
    try:
        event = read_pool_event(data)
    except UnreadableEvent as error:
        log.error("%s: %s", subject, error)
        return None
    return event.node if isinstance(event, NodeChanged) and not event.gone else None
