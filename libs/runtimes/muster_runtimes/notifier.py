"""Tells every listener which jobs have changed; several changes of a job before it is handled count as one, as in a work queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from weakref import WeakSet


class ChangeListener(AsyncIterator[str]):
    """The ids of changed jobs, beginning with ``job_ids``."""

    def __init__(self, job_ids: Iterable[str]) -> None:
        self._pending = dict.fromkeys(job_ids)
        self._has_pending = asyncio.Event()
        if self._pending:
            self._has_pending.set()

    def notify(self, job_id: str) -> None:
        """Add a changed job."""
        self._pending[job_id] = None
        self._has_pending.set()

    async def __anext__(self) -> str:
        await self._has_pending.wait()
        job_id = next(iter(self._pending))
        del self._pending[job_id]
        if not self._pending:
            self._has_pending.clear()
        return job_id


class ChangeNotifier:
    """The listeners of one runtime."""

    def __init__(self) -> None:
        self._listeners: WeakSet[ChangeListener] = WeakSet()

    def subscribe(self, job_ids: Iterable[str]) -> ChangeListener:
        """Return a new listener, which yields ``job_ids`` first."""
        listener = ChangeListener(job_ids)
        self._listeners.add(listener)
        return listener

    def notify(self, job_id: str) -> None:
        """Report a changed job to every listener."""
        for listener in self._listeners:
            listener.notify(job_id)
