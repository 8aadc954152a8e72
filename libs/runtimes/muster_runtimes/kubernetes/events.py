"""What a watch says, in JSON or in protobuf: whoever reads it need not know which it was.

Pods are asked for in protobuf. What the API server encodes in it for its controllers it hands on to us as it is; JSON it would encode for
us alone.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar, cast

import msgspec

from muster_runtimes.kubernetes.api import JSON, Stream
from muster_runtimes.kubernetes.objects import Bookmark, Metadata, Pod, Status, WatchEvent
from muster_runtimes.kubernetes.protobuf import Unreadable, event_of, identity_of, pod_of, status_of

_PROTOBUF = "application/vnd.kubernetes.protobuf"
PROTOBUF_EVENTS = f"{_PROTOBUF};stream=watch, {JSON}"
"""The media types in which events of pods are asked for: whoever does not know the first answers in JSON."""

_LONGEST_FRAME = 2**26
_LENGTH = 4

_events = msgspec.json.Decoder(WatchEvent)


class HasMetadata(Protocol):
    """An object of the API."""

    @property
    def metadata(self) -> Metadata:
        """Who it is."""
        ...


O = TypeVar("O", bound=HasMetadata)  # noqa: E741


class Event(msgspec.Struct, Generic[O], frozen=True):
    """``kind`` is ADDED, MODIFIED, DELETED or BOOKMARK, ``version`` is the object's, and ``read`` gives it, which may cost something.

    A bookmark has no object. ``read`` raises what ``read_events`` raises.
    """

    kind: str
    uid: str
    version: str
    read: Callable[[], O]


async def read_events(stream: Stream, decoder: msgspec.json.Decoder[O]) -> AsyncGenerator[Event[O] | Status]:
    """The events of a watch; a status is why it ends. An event that is not whole when the stream ends is none.

    ``decoder`` says of what kind the objects are.

    Raises:
        Unreadable: protobuf that is no event of a pod.
        msgspec.DecodeError: JSON that is no event of such an object.
    """
    if stream.content_type != _PROTOBUF:
        async for line in _lines(stream.chunks):
            yield _from_json(_events.decode(line), decoder)
        return
    if decoder.type is not Pod:
        raise Unreadable("protobuf was not asked for")
    async for frame in _frames(stream.chunks):
        yield cast("Event[O] | Status", _from_protobuf(frame))


def _from_json(event: WatchEvent, decoder: msgspec.json.Decoder[O]) -> Event[O] | Status:
    if event.type == "ERROR":
        return msgspec.json.decode(event.object, type=Status)
    if event.type == "BOOKMARK":
        version = msgspec.json.decode(event.object, type=Bookmark).metadata.resource_version
        return Event(event.type, "", version, partial(decoder.decode, event.object))
    found = decoder.decode(event.object)
    return Event(event.type, found.metadata.uid, found.metadata.resource_version, lambda: found)


def _from_protobuf(frame: bytes) -> Event[Pod] | Status:
    kind, content = event_of(frame)
    if kind == "ERROR":
        return status_of(content)
    uid, version = identity_of(content)
    return Event(kind, uid, version, partial(pod_of, content))


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line


async def _frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        begin = 0
        while len(rest) >= begin + _LENGTH:
            length = int.from_bytes(rest[begin : begin + _LENGTH])
            if length > _LONGEST_FRAME:
                raise Unreadable(f"an event of {length} bytes")
            end = begin + _LENGTH + length
            if len(rest) < end:
                break
            yield bytes(rest[begin + _LENGTH : end])
            begin = end
        del rest[:begin]
