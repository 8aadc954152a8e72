"""The queues of a pool in their bucket: the whole tree in one record under the pool's name, written by its leader.

One record, so that readers never see half of a change.
"""

from __future__ import annotations

import msgspec

from muster_bus.messages import UNREADABLE
from muster_core.models import QueueSpec
from muster_events.codec import UnreadableEvent


class QueuesRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The queues as applied. ``version`` counts from 1; 0: none were applied yet.

    ``applied_by`` and ``applied_at`` (µs) are author and time, ``request_id`` the request, ``changes`` what changed.
    ``epoch`` is that of the leader that wrote the record; leaders of earlier epochs can no longer write.
    """

    queues: tuple[QueueSpec, ...]
    version: int = 0
    applied_by: str = ""
    applied_at: int = 0
    request_id: str = ""
    changes: dict[str, str] = {}
    epoch: int = 0


NO_QUEUES = QueuesRecord(queues=())
"""The record before any queues were applied."""

_decoder = msgspec.json.Decoder(QueuesRecord)
_encoder = msgspec.json.Encoder()


def encode_queues(record: QueuesRecord) -> bytes:
    """Encode the queues for their bucket."""
    return _encoder.encode(record)


def decode_queues(data: bytes) -> QueuesRecord:
    """Decode the queues from their bucket; raises ``UnreadableEvent``. Their consistency is not checked."""
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise UnreadableEvent(str(error)) from error
