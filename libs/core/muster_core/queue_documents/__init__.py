"""Queues as text: documents of ``kind: Queue``, read with their places and written back."""

from muster_core.queue_documents.read import ParsedQueues, holds_queues, parse_queues
from muster_core.queue_documents.write import queue_schema, queues_text, to_native_queue

__all__ = [
    "ParsedQueues",
    "holds_queues",
    "parse_queues",
    "queue_schema",
    "queues_text",
    "to_native_queue",
]
