"""A copy of a collection, kept by listing it once and watching it from there on.

The loop of the client library repeats a watch from a version that the server has forgotten and never lists again. This one returns to
the list on 410, takes bookmarks, notices a connection that has gone quiet, and backs off. An object counts as gone only when the server
says so: by an event, or by a list without a version, which is read from a quorum.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from muster_pod_launcher.kubernetes.api import JSON, Api
from muster_pod_launcher.kubernetes.errors import ApiError, Gone, Unavailable
from muster_pod_launcher.kubernetes.objects import Bookmark, Metadata, ObjectList, Status, WatchEvent
from muster_runtime.logs import fields

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

_events = msgspec.json.Decoder(WatchEvent)


class HasMetadata(Protocol):
    """An object of the API."""

    @property
    def metadata(self) -> Metadata:
        """Who it is."""
        ...


O = TypeVar("O", bound=HasMetadata)  # noqa: E741


class Collection(msgspec.Struct, frozen=True, kw_only=True):
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
        api: Api,
        collection: Collection,
        kind: type[O],
        changed: Callable[[O | None, O | None], None],
    ) -> None:
        self._api = api
        self._collection = collection
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
            except Gone as gone:
                version, error = "", gone
            except _Interrupted as interrupted:
                # What was seen counts: the next watch starts there.
                version, error = interrupted.version, interrupted.cause
            except ApiError as failed:
                error = failed
            if clock() - started > _STEADY_S or (version and version != before):
                pause_s = _FIRST_PAUSE_S
            log.warning(
                "watching is interrupted: %s",
                error,
                extra=fields(path=self._collection.path, again_in_s=round(pause_s, 1)),
            )
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def put(self, found: O) -> None:
        """Take what a write was answered with, unless something newer is known, such as that it has gone since."""
        known = self.objects.get(found.metadata.uid)
        if found.metadata.uid in self._gone:
            return
        if known is None or known.metadata.version < found.metadata.version:
            self.objects[found.metadata.uid] = found
            self._changed(known, found)

    async def _list(self) -> str:
        found: dict[str, O] = {}
        query = {**self._collection.query(), "limit": _PAGE}
        while True:
            page = await self._api.get(
                self._collection.path, self._page_kind, query=query, accept=self._collection.list_type
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
            **self._collection.query(),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        try:
            async with self._api.stream(
                self._collection.path, query=query, quiet_s=_QUIET_S, accept=self._collection.event_type
            ) as chunks:
                async for line in _lines(chunks):
                    version = self._apply(_events.decode(line)) or version
        except Unavailable as error:
            raise _Interrupted(version, error) from error
        except msgspec.DecodeError as error:
            raise _Interrupted("", error) from error
        return version

    def _apply(self, event: WatchEvent) -> str:
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=Status)
            kind = Gone if status.code == 410 else Unavailable
            raise kind(status.message, status=status.code, reason=status.reason)
        if event.type == "BOOKMARK":
            return msgspec.json.decode(event.object, type=Bookmark).metadata.resource_version
        found = self._decoder.decode(event.object)
        if event.type == "DELETED":
            known = self.objects.pop(found.metadata.uid, None)
            self._gone[found.metadata.uid] = None
            if len(self._gone) > _REMEMBERED:
                del self._gone[next(iter(self._gone))]
            # The event has the object as it was last, which the copy may not have seen.
            self._changed(known, found)
            self._changed(found, None)
        else:
            self.put(found)
        return found.metadata.resource_version


class _Interrupted(Exception):
    """A watch broke off after ``version``."""

    def __init__(self, version: str, cause: Exception) -> None:
        super().__init__(str(cause))
        self.version = version
        self.cause = cause


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
