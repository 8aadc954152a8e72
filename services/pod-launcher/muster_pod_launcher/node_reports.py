"""Node reports: one instance at a time publishes what each node offers, when it differs from the last report.

Two instances may briefly both be the owner. A report is stored only if no other was stored since this instance last read:
the outdated one fails, reads again and retries.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Collection

import msgspec

from muster_bus import Bus, BusUnavailable, WrongSequence
from muster_bus.messages import Outgoing
from muster_bus.ordered_consumer import read_last_values
from muster_core.events import NodeChanged
from muster_core.models import Node
from muster_events.catalogue import NODES_STREAM, POD_LAUNCHER, reader_of
from muster_events.codec import UnreadableEvent, pool_message, read_pool_event
from muster_runtimes import Runtime
from muster_service.logs import fields

log = logging.getLogger(__name__)

_PAUSE_S = 1.0
_CONCURRENT_REPORTS = 64


class _StoredReport(msgspec.Struct, frozen=True):
    """The last report of a node and its sequence; ``node`` is None if it reported that the node is gone."""

    data: bytes
    sequence: int
    node: Node | None


class NodeReports:
    """Reports the nodes of ``runtime`` as those of ``pool``."""

    def __init__(self, *, bus: Bus, runtime: Runtime, pool: str) -> None:
        self._bus = bus
        self._runtime = runtime
        self._pool = pool
        self._reports: dict[str, _StoredReport] = {}
        self._published: dict[str, Node] = {}
        self.up_to_date = asyncio.Event()

    async def run(self) -> None:
        """Report until cancelled, or until the nodes can no longer change; ``up_to_date`` is set after the first complete report."""
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
                except BusUnavailable as error:
                    log.warning("nodes cannot be reported yet: %s", error)
                    is_read = False
                    await asyncio.sleep(_PAUSE_S)
            self.up_to_date.set()

    async def _read(self) -> None:
        [subject] = reader_of(POD_LAUNCHER, NODES_STREAM).in_pool(self._pool)
        last = await read_last_values(self._bus, NODES_STREAM, subject)
        self._reports = {
            one.subject: _StoredReport(one.data, one.stream_sequence, _node_of(one.subject, one.data))
            for one in last
        }
        self._published.clear()

    async def _report(self) -> None:
        nodes = {node.name: node for node in self._runtime.nodes()}
        # Most nodes have not changed: the runtime then returns the same object, which need not be encoded again.
        fresh = [node for node in nodes.values() if self._published.get(node.name) is not node]
        messages = [self._message(node) for node in fresh]
        messages += [self._message(node, gone=True) for node in self._gone_nodes(nodes.keys())]
        changed = [message for message in messages if self._is_changed(message)]
        for first in range(0, len(changed), _CONCURRENT_REPORTS):
            results = await asyncio.gather(
                *map(self._publish, changed[first : first + _CONCURRENT_REPORTS]), return_exceptions=True
            )
            for failure in results:
                if isinstance(failure, BaseException):
                    raise failure
        self._published = nodes

    def _message(self, node: Node, *, gone: bool = False) -> Outgoing:
        return pool_message(NodeChanged(pool=self._pool, node=node, gone=gone), source=POD_LAUNCHER)

    def _is_changed(self, message: Outgoing) -> bool:
        report = self._reports.get(message.subject)
        return report is None or report.data != message.data

    def _gone_nodes(self, names: Collection[str]) -> list[Node]:
        known = [report.node for report in self._reports.values() if report.node is not None]
        return [node for node in known if node.name not in names]

    async def _publish(self, message: Outgoing) -> None:
        last = self._reports[message.subject].sequence if message.subject in self._reports else 0
        # The content may equal an earlier report: the sequence makes the message id unique.
        digest = hashlib.blake2b(message.data, digest_size=8).hexdigest()
        message = msgspec.structs.replace(
            message, expected_last=last, msg_id=f"{message.subject}/{last}/{digest}"
        )
        published = await self._bus.publish_once(message)
        self._reports[message.subject] = _StoredReport(
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
