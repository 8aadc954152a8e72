"""Tells every listener which jobs have changed; a job that changes twice before it is looked at is told once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from weakref import WeakSet


class ChangeListener(AsyncIterator[str]):
    """Job ids as they change, from the moment of its creation on."""

    def __init__(self, job_ids: Iterable[str]) -> None:
        self._pending = dict.fromkeys(job_ids)
        self._something = asyncio.Event()
        if self._pending:
            self._something.set()

    def notify(self, job_id: str) -> None:
        """Note that the job has changed."""
        self._pending[job_id] = None
        self._something.set()

    async def __anext__(self) -> str:
        await self._something.wait()
        job_id = next(iter(self._pending))
        del self._pending[job_id]
        if not self._pending:
            self._something.clear()
        return job_id


class ChangeNotifier:
    """The listeners of one runtime."""

    def __init__(self) -> None:
        self._listeners: WeakSet[ChangeListener] = WeakSet()

    def subscribe(self, job_ids: Iterable[str]) -> ChangeListener:
        """A new listener, told of ``job_ids`` first."""
        listener = ChangeListener(job_ids)
        self._listeners.add(listener)
        return listener

    def notify(self, job_id: str) -> None:
        """Tell every listener that the job has changed."""
        for listener in self._listeners:
            listener.notify(job_id)
