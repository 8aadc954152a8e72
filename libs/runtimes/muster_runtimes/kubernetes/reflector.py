"""A copy of a collection, kept by listing it once and watching it from there on.

The loop of the client library repeats a watch from a version that the server has forgotten and never lists again. This one returns to
the list on 410, takes bookmarks, notices a connection that has gone quiet, and backs off. An object counts as gone only when the server
says so: by an event, or by a list without a version, which is read from a quorum.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Generic

import msgspec

from muster_runtimes.kubernetes.api import JSON, Api
from muster_runtimes.kubernetes.errors import ApiError, Gone, Unavailable
from muster_runtimes.kubernetes.events import Event, O, read_events
from muster_runtimes.kubernetes.objects import ObjectList, Status
from muster_runtimes.kubernetes.protobuf import Unreadable
from muster_service.logs import fields

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
            ) as stream:
                async for event in read_events(stream, self._decoder):
                    version = self._apply(event) or version
        except Unavailable as error:
            raise _Interrupted(version, error) from error
        except (msgspec.DecodeError, Unreadable) as error:
            raise _Interrupted("", error) from error
        return version

    def _apply(self, event: Event[O] | Status) -> str:
        if isinstance(event, Status):
            kind = Gone if event.code == 410 else Unavailable
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
