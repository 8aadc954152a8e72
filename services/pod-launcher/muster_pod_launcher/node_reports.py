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

from muster_bus import Bus, BusUnavailable, Incoming, WrongSequence
from muster_bus.messages import Outgoing
from muster_bus.ordered_consumer import read_last_values
from muster_core.events import NodeChanged
from muster_core.models import Node
from muster_events.catalogue import NODES_STREAM, POD_LAUNCHER, reader_of
from muster_events.codec import UnreadableEvent, pool_message, read_node
from muster_runtimes import Runtime
from muster_service.logs import fields

log = logging.getLogger(__name__)

_PAUSE_S = 1.0
_SETTLE_S = 0.1
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
        self._own: dict[str, bytes] = {}
        self._is_read = False
        self._is_known = False
        self._wanted = asyncio.Event()
        self.up_to_date = asyncio.Event()

    async def run(self) -> None:
        """Report until cancelled; ``up_to_date`` is set after the first complete report."""
        [subject] = reader_of(POD_LAUNCHER, NODES_STREAM).in_pool(self._pool)
        others = await self._bus.subscribe(subject, self._receive, flush=False)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._follow_runtime())
                while True:
                    await self._wanted.wait()
                    self._wanted.clear()
                    await self._report_all()
                    self.up_to_date.set()
                    # Two instances with different views must not answer each other without a pause.
                    await asyncio.sleep(_SETTLE_S)
        finally:
            await others.close()

    async def _follow_runtime(self) -> None:
        async for _ in self._runtime.node_changes():
            self._is_known = True
            self._wanted.set()

    def _receive(self, incoming: Incoming) -> None:
        """Report again after what somebody else wrote: only the last report of a node is kept, and a new leader reads it."""
        if self._is_known and self._own.get(incoming.subject) != incoming.data:
            log.warning("%s was written by another: the nodes are reported again", incoming.subject)
            self._is_read = False
            self._wanted.set()

    async def _report_all(self) -> None:
        while True:
            try:
                if not self._is_read:
                    self._is_read = True
                    await self._read()
                return await self._report()
            except WrongSequence:
                self._is_read = False
            except BusUnavailable as error:
                log.warning("nodes cannot be reported yet: %s", error)
                self._is_read = False
                await asyncio.sleep(_PAUSE_S)

    async def _read(self) -> None:
        [subject] = reader_of(POD_LAUNCHER, NODES_STREAM).in_pool(self._pool)
        last = await read_last_values(self._bus, NODES_STREAM, subject)
        self._reports = {
            one.subject: _StoredReport(
                one.data, one.stream_sequence, _node_of(self._pool, one.subject, one.data)
            )
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
        self._own[message.subject] = message.data
        published = await self._bus.publish_once(message)
        self._reports[message.subject] = _StoredReport(
            message.data, published.sequence, _node_of(self._pool, message.subject, message.data)
        )
        log.info("node reported", extra=fields(subject=message.subject))


def _node_of(pool: str, subject: str, data: bytes) -> Node | None:
    try:
        event = read_node(data, pool=pool, subject=subject)
    except UnreadableEvent as error:
        log.error("%s: %s", subject, error)
        return None
    return None if event.gone else event.node
