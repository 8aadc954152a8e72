"""Follow a job from its submission to its end: events, and replica output between them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from muster._cli.scribe import LogLines, Scribe
from muster._cli.story import Story
from muster._cursors import LogCursor
from muster._references import replica_label
from muster.aio import AsyncClient
from muster.errors import MusterError
from muster_rpc.v1 import job_pb2

_LAST_WORDS_S = 10.0
_WRITING = frozenset({job_pb2.PHASE_LAUNCHING, job_pb2.PHASE_RUNNING})


class Follower:
    """Follows one job. With ``lines`` logs are printed too; without ``scribe`` events are not."""

    def __init__(
        self, client: AsyncClient, job_id: str, *, scribe: Scribe | None, lines: LogLines | None
    ) -> None:
        self._client = client
        self._job_id = job_id
        self._scribe = scribe
        self._lines = lines
        self._cursor = LogCursor()
        self._reading: asyncio.Task[None] | None = None
        self._complete = False

    async def follow(self) -> job_pb2.Job:
        """Follow to the end and return the final state of the job."""
        story = Story(from_start=True)
        last = job_pb2.Job()
        try:
            async for last in self._client.watch(self._job_id):
                if self._scribe:
                    for line in story.tell(last):
                        self._scribe.tell(line)
                if last.status.phase in _WRITING:
                    self._begin_reading(last)
            await self._finish_reading(last)
        finally:
            if self._reading:
                self._reading.cancel()
                with suppress(asyncio.CancelledError):
                    await self._reading
        return last

    def _begin_reading(self, job: job_pb2.Job) -> None:
        if self._lines and (self._reading is None or self._reading.done()):
            self._complete = False
            self._reading = asyncio.create_task(self._read(job, follow=True))

    async def _finish_reading(self, job: job_pb2.Job) -> None:
        """Print the remaining output: of the open stream, or everything if none was open."""
        if not self._lines:
            return
        if self._reading:
            await asyncio.wait({self._reading}, timeout=_LAST_WORDS_S)
        if not self._complete and job.status.attempt:
            if self._reading:
                self._reading.cancel()
            await asyncio.wait_for(self._read(job, follow=False), _LAST_WORDS_S)
        self._lines.end()

    async def _read(self, job: job_pb2.Job, *, follow: bool) -> None:
        self._cursor.restart()
        try:
            async for chunk in self._client.logs(self._job_id, follow=follow):
                if self._lines and (news := self._cursor.news(chunk)) is not None:
                    self._lines.write(replica_label(news.replica), news.data)
            self._complete = True
        except MusterError as error:
            if self._scribe:
                self._scribe.say(f"logs are unavailable: {error}", style="dim")
