"""A reflector: a local copy of a collection, kept by one list and a watch from there on.

The list-watch loop of the client library repeats a watch from an expired resource version and never lists again. This one lists again
on 410, uses bookmarks, detects silent connections and backs off. An object is removed only by an event of the API server, or by a list
without a resource version, which is a quorum read.

Pods are watched in protobuf: the API server encodes protobuf events once for all watchers, JSON events for each watcher.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar, cast

import msgspec

from muster_runtimes.kubernetes.api_client import JSON, ApiClient, ResponseStream
from muster_runtimes.kubernetes.errors import ApiUnavailable, KubernetesApiError, ResourceVersionExpired
from muster_runtimes.kubernetes.objects import (
    Bookmark,
    ObjectList,
    ObjectMeta,
    Pod,
    ProtobufError,
    Status,
    WatchEvent,
    decode_identity,
    decode_pod,
    decode_status,
    decode_watch_event,
)
from muster_service.logs import fields

log = logging.getLogger(__name__)

_PROTOBUF = "application/vnd.kubernetes.protobuf"
PROTOBUF_EVENTS = f"{_PROTOBUF};stream=watch, {JSON}"
"""The media types for watching pods; a server without protobuf answers in JSON."""

_MAX_FRAME_BYTES = 2**26
_LENGTH_BYTES = 4
_PAGE = "1000"
_WATCH_S = 280
# Bookmarks come about every minute.
_IDLE_S = 150.0
_MIN_BACKOFF_S = 0.2
_MAX_BACKOFF_S = 5.0
# A watch that lasted this long resets the back-off.
_STEADY_S = 10.0
_DELETED_UIDS = 1_000

_events = msgspec.json.Decoder(WatchEvent)


class HasMetadata(Protocol):
    """An object of the Kubernetes API."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""
        ...


O = TypeVar("O", bound=HasMetadata)  # noqa: E741


class ObjectEvent(msgspec.Struct, Generic[O], frozen=True):
    """A watch event, of which the object is decoded on demand.

    Attributes:
        kind: ADDED, MODIFIED, DELETED or BOOKMARK; a bookmark has no object.
        version: The resource version of the object.
        decode: Decodes the object; raises like ``decode_events``.
    """

    kind: str
    uid: str
    version: str
    decode: Callable[[], O]


async def decode_events(
    stream: ResponseStream, decoder: msgspec.json.Decoder[O]
) -> AsyncGenerator[ObjectEvent[O] | Status]:
    """Yield the events of a watch. A status ends the watch; an incomplete event at the end of the stream is dropped.

    Args:
        stream: The response, in JSON or protobuf.
        decoder: The decoder for the objects.

    Raises:
        ProtobufError: A protobuf message is not an event of a pod.
        msgspec.DecodeError: A line is not an event of such an object.
    """
    if stream.content_type != _PROTOBUF:
        async for line in _lines(stream.chunks):
            yield _from_json(_events.decode(line), decoder)
        return
    if decoder.type is not Pod:
        raise ProtobufError("the API server sent protobuf, but JSON was requested")
    async for frame in _frames(stream.chunks):
        yield cast("ObjectEvent[O] | Status", _from_protobuf(frame))


def _from_json(event: WatchEvent, decoder: msgspec.json.Decoder[O]) -> ObjectEvent[O] | Status:
    if event.type == "ERROR":
        return msgspec.json.decode(event.object, type=Status)
    if event.type == "BOOKMARK":
        version = msgspec.json.decode(event.object, type=Bookmark).metadata.resource_version
        return ObjectEvent(event.type, "", version, partial(decoder.decode, event.object))
    found = decoder.decode(event.object)
    return ObjectEvent(event.type, found.metadata.uid, found.metadata.resource_version, lambda: found)


def _from_protobuf(frame: bytes) -> ObjectEvent[Pod] | Status:
    kind, content = decode_watch_event(frame)
    if kind == "ERROR":
        return decode_status(content)
    uid, version = decode_identity(content)
    return ObjectEvent(kind, uid, version, partial(decode_pod, content))


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest: list[bytes] = []
    size = 0
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        size += len(first)
        if size > _MAX_FRAME_BYTES:
            raise msgspec.DecodeError(f"a watch event has more than {_MAX_FRAME_BYTES} bytes")
        for following in others:
            if line := b"".join(rest):
                yield line
            rest = [following]
            size = len(following)


async def _frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in chunks:
        rest += chunk
        begin = 0
        while len(rest) >= begin + _LENGTH_BYTES:
            length = int.from_bytes(rest[begin : begin + _LENGTH_BYTES])
            if length > _MAX_FRAME_BYTES:
                raise ProtobufError(f"a watch event has {length} bytes, the limit is {_MAX_FRAME_BYTES}")
            end = begin + _LENGTH_BYTES + length
            if len(rest) < end:
                break
            yield bytes(rest[begin + _LENGTH_BYTES : end])
            begin = end
        del rest[:begin]


class WatchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The collection at ``path``, narrowed by selectors, and the media types of lists and events."""

    path: str
    labels: str = ""
    fields: str = ""
    list_type: str = JSON
    event_type: str = JSON

    def query(self) -> dict[str, str]:
        """Return the selectors as query parameters."""
        selectors = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: selector for name, selector in selectors.items() if selector}


class Reflector(Generic[O]):
    """Keeps ``objects`` by uid, and sets ``synced`` after the first list.

    ``on_change`` receives an object's old and new version; None stands for an object that does not exist.
    """

    def __init__(
        self,
        *,
        api: ApiClient,
        target: WatchTarget,
        kind: type[O],
        on_change: Callable[[O | None, O | None], None],
    ) -> None:
        self._api = api
        self._target = target
        self._page_kind = ObjectList[kind]
        self._decoder = msgspec.json.Decoder(kind)
        self._on_change = on_change
        self._deleted: dict[str, None] = {}
        self.objects: dict[str, O] = {}
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """List and watch until cancelled."""
        clock = asyncio.get_running_loop().time
        backoff_s = _MIN_BACKOFF_S
        version = ""
        while True:
            started, before = clock(), version
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                version = await self._watch(version)
                backoff_s = _MIN_BACKOFF_S
                continue
            except ResourceVersionExpired as expired:
                version, error = "", expired
            except _Interrupted as interrupted:
                # The next watch begins after the last event of this one.
                version, error = interrupted.version, interrupted.cause
            except KubernetesApiError as failed:
                error = failed
            if clock() - started > _STEADY_S or (version and version != before):
                backoff_s = _MIN_BACKOFF_S
            log.warning(
                "watch interrupted: %s",
                error,
                extra=fields(path=self._target.path, again_in_s=round(backoff_s, 1)),
            )
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            backoff_s = min(backoff_s * 2, _MAX_BACKOFF_S)

    def put(self, found: O) -> None:
        """Add the response to a write, unless a newer version or the deletion of the object is known."""
        uid = found.metadata.uid
        if self._is_newer(uid, found.metadata.version):
            known = self.objects.get(uid)
            self.objects[uid] = found
            self._on_change(known, found)

    def _is_newer(self, uid: str, version: int) -> bool:
        known = self.objects.get(uid)
        return uid not in self._deleted and (known is None or known.metadata.version < version)

    async def refresh(self, selector: str) -> None:
        """Add the objects with these labels that the API server has now; raises ``KubernetesApiError`` if it cannot be read."""
        found, _ = await self._read({**self._target.query(), "labelSelector": selector})
        for item in found.values():
            self.put(item)

    async def _list(self) -> str:
        found, version = await self._read(self._target.query())
        self._replace(found, int(version or 0))
        return version

    async def _read(self, query: dict[str, str]) -> tuple[dict[str, O], str]:
        """Return the objects that match a query, by uid, and the resource version of the list, which is a quorum read."""
        found: dict[str, O] = {}
        query = {**query, "limit": _PAGE}
        while True:
            page = await self._api.get(
                self._target.path, self._page_kind, query=query, accept=self._target.list_type
            )
            found.update((item.metadata.uid, item) for item in page.items or ())
            if not page.metadata.next_page:
                return found, page.metadata.resource_version
            query["continue"] = page.metadata.next_page

    def _replace(self, found: dict[str, O], version: int) -> None:
        for uid, known in list(self.objects.items()):
            # An object that was written during the list is newer than the list.
            if uid not in found and known.metadata.version <= version:
                del self.objects[uid]
                self._on_change(known, None)
        for item in found.values():
            self.put(item)

    async def _watch(self, version: str) -> str:
        query = {
            **self._target.query(),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        try:
            async with self._api.stream(
                self._target.path, query=query, idle_timeout_s=_IDLE_S, accept=self._target.event_type
            ) as stream:
                async for event in decode_events(stream, self._decoder):
                    version = self._apply(event) or version
        except ApiUnavailable as error:
            raise _Interrupted(version, error) from error
        except (msgspec.DecodeError, UnicodeDecodeError, ProtobufError) as error:
            raise _Interrupted("", error) from error
        return version

    def _apply(self, event: ObjectEvent[O] | Status) -> str:
        if isinstance(event, Status):
            kind = ResourceVersionExpired if event.code == 410 else ApiUnavailable
            raise kind(event.message, status=event.code, reason=event.reason)
        if event.kind == "DELETED":
            found = event.decode()
            known = self.objects.pop(event.uid, None)
            self._deleted[event.uid] = None
            if len(self._deleted) > _DELETED_UIDS:
                del self._deleted[next(iter(self._deleted))]
            # The event has the last version of the object, which may be newer than the copy.
            self._on_change(known, found)
            self._on_change(found, None)
        # The first event of an object that was put is not newer and need not be decoded.
        elif event.kind != "BOOKMARK" and self._is_newer(event.uid, int(event.version or 0)):
            self.put(event.decode())
        return event.version


class _Interrupted(Exception):
    """A watch ended early, after ``version``."""

    def __init__(self, version: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.version = version
        self.cause = cause
