"""Publishing with durable acknowledgement: single messages, retries, and fenced atomic batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from secrets import token_hex
from typing import TYPE_CHECKING

from muster_bus import _api
from muster_bus.errors import BatchTooLarge, BusUnavailable, Duplicate, Fenced, WriteInProcess, WrongSequence
from muster_bus.messages import (
    BATCH_COMMIT,
    BATCH_ID,
    BATCH_SEQUENCE,
    EXPECTED_LAST,
    EXPECTED_SUBJECT,
    Fence,
    Outgoing,
    Published,
    check_subject,
    parse_ack,
    wire_headers,
)

if TYPE_CHECKING:
    from muster_bus.connection import Bus

MAX_BATCH = 1000
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_IN_PROCESS_S = 3.0
_IN_PROCESS_PAUSE_S = 0.01


async def publish(bus: Bus, outgoing: Outgoing, *, fence: Fence | None = None) -> Published:
    """Store one message, conditional on ``fence`` if given."""
    check_subject(outgoing.subject)
    headers = wire_headers(outgoing)
    if fence is not None:
        _put_fence(headers, fence)
    with bus.storing():
        reply = await bus.request(outgoing.subject, outgoing.data, headers=headers)
        ack = parse_ack(reply.data)
    return Published(ack.stream, ack.seq, ack.duplicate)


async def publish_once(bus: Bus, outgoing: Outgoing, *, deadline_s: float) -> Published:
    """Store one message, retrying while the outcome is unknown; a retry that finds its own success returns it."""
    give_up = time.monotonic() + deadline_s
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return await _publish_or_find(bus, outgoing)
        except BusUnavailable:
            if time.monotonic() + pause > give_up:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, _LONGEST_PAUSE_S)


async def _publish_or_find(bus: Bus, outgoing: Outgoing) -> Published:
    try:
        published = await publish(bus, outgoing)
    except WrongSequence:
        stream = await _api.stream_of(bus, outgoing.subject)
        last = await _api.last_message(bus, stream, outgoing.subject)
        if last is None or last.msg_id != outgoing.msg_id:
            raise
        return Published(stream, last.stream_sequence, True)
    if published.duplicate:
        await _check_own(bus, outgoing, published)
    return published


async def _check_own(bus: Bus, outgoing: Outgoing, published: Published) -> None:
    """The duplicate filter spans the stream: the same id on another subject would be dropped silently."""
    stored = await _api.message_at(bus, published.stream, published.sequence)
    if stored is not None and stored.subject != outgoing.subject:
        raise Duplicate(f"message id {outgoing.msg_id} was already used on {stored.subject}")


async def commit(bus: Bus, outgoings: Sequence[Outgoing], *, fence: Fence | None) -> Published:
    """Store all of ``outgoings`` or none of them."""
    if not outgoings:
        raise ValueError("an empty batch")
    if len(outgoings) > MAX_BATCH:
        raise BatchTooLarge(f"{len(outgoings)} messages in one batch, at most {MAX_BATCH}")
    if fence is not None and all(outgoing.expected_last is not None for outgoing in outgoings):
        # A message carries one condition: its own subject's sequence or the fence's.
        raise ValueError("a fenced batch needs a message without expected_last to carry the fence")
    give_up = time.monotonic() + _IN_PROCESS_S
    while True:
        try:
            return await _commit_once(bus, outgoings, fence=fence)
        except WriteInProcess:
            # The leader of a cluster checks one condition on a subject at a time: concurrent commits share the fence's subject.
            if time.monotonic() > give_up:
                raise
        await asyncio.sleep(_IN_PROCESS_PAUSE_S)


async def _commit_once(bus: Bus, outgoings: Sequence[Outgoing], *, fence: Fence | None) -> Published:
    try:
        if len(outgoings) == 1:
            return await publish(bus, outgoings[0], fence=fence)
        return await _send_batch(bus, outgoings, fence=fence)
    except WrongSequence:
        if fence is not None and await _moved(bus, fence, outgoings):
            raise Fenced(f"{fence.subject} has moved past {fence.sequence}") from None
        raise
    except Duplicate as refusal:
        return await _find_batch(bus, outgoings, refusal)


async def _send_batch(bus: Bus, outgoings: Sequence[Outgoing], *, fence: Fence | None) -> Published:
    batch_id = token_hex(16)
    last = len(outgoings)
    for number, outgoing in enumerate(outgoings, start=1):
        check_subject(outgoing.subject)
        headers = wire_headers(outgoing)
        if fence is not None and outgoing.expected_last is None:
            _put_fence(headers, fence)
        headers[BATCH_ID] = batch_id
        headers[BATCH_SEQUENCE] = str(number)
        if number < last:
            await bus.send(outgoing.subject, outgoing.data, headers=headers)
            continue
        headers[BATCH_COMMIT] = "1"
        with bus.storing():
            ack = parse_ack((await bus.request(outgoing.subject, outgoing.data, headers=headers)).data)
        return Published(ack.stream, ack.seq, ack.duplicate)
    raise ValueError("an empty batch")


def _put_fence(headers: dict[str, str], fence: Fence) -> None:
    headers[EXPECTED_LAST] = str(fence.sequence)
    headers[EXPECTED_SUBJECT] = fence.subject


async def _moved(bus: Bus, fence: Fence, outgoings: Sequence[Outgoing]) -> bool:
    if all(outgoing.expected_last is None for outgoing in outgoings):
        return True
    stream = await _api.stream_of(bus, fence.subject)
    last = await _api.last_message(bus, stream, fence.subject)
    return last is None or last.stream_sequence != fence.sequence


async def _find_batch(bus: Bus, outgoings: Sequence[Outgoing], refusal: Duplicate) -> Published:
    """A batch refused for a duplicate id is an earlier success if its last message is stored."""
    last = outgoings[-1]
    stream = await _api.stream_of(bus, last.subject)
    stored = await _api.last_message(bus, stream, last.subject)
    if stored is None or stored.msg_id != last.msg_id:
        raise refusal
    return Published(stream, stored.stream_sequence, True)
