"""Queues as text: documents of ``kind: Queue``, read with their places and written back."""

from muster_formats.queues.read import ParsedQueues, holds_queues, parse_queues
from muster_formats.queues.write import queue_schema, queues_text, to_native_queue

__all__ = [
    "ParsedQueues",
    "holds_queues",
    "parse_queues",
    "queue_schema",
    "queues_text",
    "to_native_queue",
]
