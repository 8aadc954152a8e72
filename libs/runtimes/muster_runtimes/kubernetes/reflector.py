"""DOC."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from typing import Generic, Protocol, TypeVar, cast

import msgspec

from muster_runtimes.kubernetes.api_client import (
    JSON,
    ApiClient,
    ApiUnavailable,
    KubernetesApiError,
    ResourceVersionExpired,
    ResponseStream,
)
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

_PROTOBUF = "application/vnd.kubernetes.protobuf"
PROTOBUF_EVENTS = f"{_PROTOBUF};stream=watch, {JSON}"
"""The media types in which events of pods are asked for: whoever does not know the first answers in JSON."""

_LONGEST_FRAME = 2**26
_LENGTH = 4

_events = msgspec.json.Decoder(WatchEvent)


class HasMetadata(Protocol):
    """An object of the API."""

    @property
    def metadata(self) -> ObjectMeta:
        """Who it is."""
        ...


O = TypeVar("O", bound=HasMetadata)  # noqa: E741


class ObjectEvent(msgspec.Struct, Generic[O], frozen=True):
    """``kind`` is ADDED, MODIFIED, DELETED or BOOKMARK, ``version`` is the object's, and ``read`` gives it, which may cost something.

    A bookmark has no object. ``read`` raises what ``decode_events`` raises.
    """

    kind: str
    uid: str
    version: str
    read: Callable[[], O]


async def decode_events(
    stream: ResponseStream, decoder: msgspec.json.Decoder[O]
) -> AsyncGenerator[ObjectEvent[O] | Status]:
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
        raise ProtobufError("protobuf was not asked for")
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
                raise ProtobufError(f"an event of {length} bytes")
            end = begin + _LENGTH + length
            if len(rest) < end:
                break
            yield bytes(rest[begin + _LENGTH : end])
            begin = end
        del rest[:begin]


log = logging.getLogger(__name__)

_PAGE = "1000"
_WATCH_S = 280
# Bookmarks come about every minute.
_QUIET_S = 150.0
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
# What went well for so long is not what makes the server work too hard.
_STEADY_S = 10.0
_REMEMBERED = 1_000


class WatchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What is watched: ``path`` of a collection, narrowed by selectors; the media types in which lists and events are asked for."""

    path: str
    labels: str = ""
    fields: str = ""
    list_type: str = JSON
    event_type: str = JSON

    def query(self) -> dict[str, str]:
        """The selectors as a query."""
        said = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {name: selector for name, selector in said.items() if selector}


class Reflector(Generic[O]):
    """Keeps ``objects``, by uid. ``changed`` is told what an object was before and is now, None for what is not there.

    ``synced`` is set once the first list is taken.
    """

    def __init__(
        self,
        *,
        api: ApiClient,
        target: WatchTarget,
        kind: type[O],
        changed: Callable[[O | None, O | None], None],
    ) -> None:
        self._api = api
        self._target = target
        self._page_kind = ObjectList[kind]
        self._decoder = msgspec.json.Decoder(kind)
        self._changed = changed
        self._gone: dict[str, None] = {}
        self.objects: dict[str, O] = {}
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Keep the copy until cancelled."""
        clock = asyncio.get_running_loop().time
        pause_s = _FIRST_PAUSE_S
        version = ""
        while True:
            started, before = clock(), version
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                version = await self._watch(version)
                pause_s = _FIRST_PAUSE_S
                continue
            except ResourceVersionExpired as gone:
                version, error = "", gone
            except _Interrupted as interrupted:
                # What was seen counts: the next watch starts there.
                version, error = interrupted.version, interrupted.cause
            except KubernetesApiError as failed:
                error = failed
            if clock() - started > _STEADY_S or (version and version != before):
                pause_s = _FIRST_PAUSE_S
            log.warning(
                "watching is interrupted: %s",
                error,
                extra=fields(path=self._target.path, again_in_s=round(pause_s, 1)),
            )
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def put(self, found: O) -> None:
        """Take what a write was answered with, unless something newer is known, such as that it has gone since."""
        uid = found.metadata.uid
        if self._is_news(uid, found.metadata.version):
            known = self.objects.get(uid)
            self.objects[uid] = found
            self._changed(known, found)

    def _is_news(self, uid: str, version: int) -> bool:
        known = self.objects.get(uid)
        return uid not in self._gone and (known is None or known.metadata.version < version)

    async def _list(self) -> str:
        found: dict[str, O] = {}
        query = {**self._target.query(), "limit": _PAGE}
        while True:
            page = await self._api.get(
                self._target.path, self._page_kind, query=query, accept=self._target.list_type
            )
            found.update((item.metadata.uid, item) for item in page.items or ())
            if not page.metadata.next_page:
                break
            query["continue"] = page.metadata.next_page
        self._replace(found, int(page.metadata.resource_version or 0))
        return page.metadata.resource_version

    def _replace(self, found: dict[str, O], version: int) -> None:
        for uid, known in list(self.objects.items()):
            # What was written while the list was under way is newer than the list.
            if uid not in found and known.metadata.version <= version:
                del self.objects[uid]
                self._changed(known, None)
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
                self._target.path,
                query=query,
                idle_timeout_s=_QUIET_S,
                accept=self._target.event_type,
            ) as stream:
                async for event in decode_events(stream, self._decoder):
                    version = self._apply(event) or version
        except ApiUnavailable as error:
            raise _Interrupted(version, error) from error
        except (msgspec.DecodeError, ProtobufError) as error:
            raise _Interrupted("", error) from error
        return version

    def _apply(self, event: ObjectEvent[O] | Status) -> str:
        if isinstance(event, Status):
            kind = ResourceVersionExpired if event.code == 410 else ApiUnavailable
            raise kind(event.message, status=event.code, reason=event.reason)
        if event.kind == "DELETED":
            found = event.read()
            known = self.objects.pop(event.uid, None)
            self._gone[event.uid] = None
            if len(self._gone) > _REMEMBERED:
                del self._gone[next(iter(self._gone))]
            # The event has the object as it was last, which the copy may not have seen.
            self._changed(known, found)
            self._changed(found, None)
        # The first event of an object that was put says nothing new, and need not be read.
        elif event.kind != "BOOKMARK" and self._is_news(event.uid, int(event.version or 0)):
            self.put(event.read())
        return event.version


class _Interrupted(Exception):
    """A watch broke off after ``version``."""

    def __init__(self, version: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.version = version
        self.cause = cause
