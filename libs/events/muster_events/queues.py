"""The queues of a pool in their bucket: the whole tree in one record, under the pool's name, written by its leading scheduler.

One record, because queues only make sense together: whoever reads them sees the tree as it was applied, never half of a change.
"""

from __future__ import annotations

import msgspec

from muster_core.models import QueueSpec
from muster_events.codec import UnreadableEvent


class QueuesRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The queues as applied. ``version`` counts from 1; 0: none were applied yet.

    ``applied_by`` and ``applied_at`` (µs) tell who and when, ``request_id`` by what request, ``changes`` what became of which queue.
    ``epoch`` is that of the leader that wrote the record; leaders of earlier epochs write no more.
    """

    queues: tuple[QueueSpec, ...]
    version: int = 0
    applied_by: str = ""
    applied_at: int = 0
    request_id: str = ""
    changes: dict[str, str] = {}
    epoch: int = 0


NO_QUEUES = QueuesRecord(queues=())
"""What is in force before anyone applied anything."""

_decoder = msgspec.json.Decoder(QueuesRecord)
_encoder = msgspec.json.Encoder()


def encode_queues(record: QueuesRecord) -> bytes:
    """The queues for their bucket."""
    return _encoder.encode(record)


def decode_queues(data: bytes) -> QueuesRecord:
    """The queues from their bucket; raises ``UnreadableEvent``. Whether they go together is not looked at."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableEvent(str(error)) from error
