"""A load of submissions at a steady rate, which notes when each was acknowledged, and the checks that none was lost."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import msgspec
from documents import job

from muster import AsyncClient, MusterError
from muster_rpc.v1 import job_pb2

SUCCEEDED, QUEUED = job_pb2.PHASE_SUCCEEDED, job_pb2.PHASE_QUEUED
LOAD_RATE = int(os.environ.get("MUSTER_LOAD_RATE", "8"))
"""Submissions per second while everything is restarted."""

STARTED_PER_S = min(4, LOAD_RATE // 4)
"""How many of them start a process."""

RETRY_TIMEOUT_S = 120.0
"""How long the client of a load repeats a call that the server answers with UNAVAILABLE."""

_MORE_THAN_A_NODE = 1_000
_POLL_S = 1.0
# O_APPEND makes each line atomic.
_APPEND = 'echo "$MUSTER_JOB_ID $MUSTER_ATTEMPT $MUSTER_ROLE $MUSTER_INDEX" >> "$1"'


class Acknowledged(msgspec.Struct, frozen=True):
    """A submission that was acknowledged, at a time of the monotonic clock."""

    job_id: str
    at: float
    outcome: job_pb2.Phase.ValueType


class SubmissionLoad:
    """Submits jobs at a steady rate, however long each call takes.

    A job that starts appends a line to a file for each run of a replica. The others ask for more than a node has and stay
    queued: a started process costs so much CPU that a machine of two cores cannot start fifty a second.

    Args:
        muster: the client, which repeats a call that is answered with UNAVAILABLE.
        run_log: the file.
        started_per_s: jobs per second that start.
        queued_per_s: jobs per second that stay queued.
    """

    def __init__(
        self, muster: AsyncClient, *, run_log: Path, started_per_s: int, queued_per_s: int = 0
    ) -> None:
        self.acknowledged: list[Acknowledged] = []
        self.failures: list[MusterError] = []
        self.begun = 0
        self.seconds = 0.0
        self._muster = muster
        self._run_log = run_log
        self._rate = started_per_s + queued_per_s
        self._started_per_s = started_per_s
        self._calls: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        run_log.touch()

    @property
    def rate(self) -> float:
        """The submissions per second that were begun."""
        return self.begun / self.seconds

    async def __aenter__(self) -> SubmissionLoad:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Submit no more, and wait for the calls in progress."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if kind is not None:
                for call in self._calls:
                    call.cancel()
            while self._calls:
                await asyncio.wait(self._calls)
            if not self._task.cancelled():
                self._task.result()

    async def acknowledged_after(self, at: float, *, within_s: float = 120) -> None:
        """Wait until a submission is acknowledged after a time of the monotonic clock."""
        async with asyncio.timeout(within_s):
            while not self.acknowledged or self.acknowledged[-1].at <= at:
                self._news.clear()
                await self._news.wait()

    def gaps_after(self, times: list[float]) -> list[float]:
        """Return for each of these ascending times the longest time without an acknowledgement from then to the next one.

        An interval between two acknowledgements belongs to the last of the times before its end.
        """
        longest = [0.0] * len(times)
        for before, after in pairwise(one.at for one in self.acknowledged):
            number = sum(at < after for at in times) - 1
            if number >= 0:
                longest[number] = max(longest[number], after - before)
        return longest

    def first_after(self, at: float) -> float:
        """Return the time of the first acknowledgement after this time; raises ``StopIteration`` if there is none."""
        return next(one.at for one in self.acknowledged if one.at > at)

    async def assert_nothing_is_lost(self, *, within_s: float = 180) -> None:
        """Assert that no call failed, and that each acknowledged job gets to its outcome in one attempt, with one run of each replica."""
        assert self.failures == []
        wanted = {one.job_id: one.outcome for one in self.acknowledged}
        assert len(wanted) == len(self.acknowledged) == self.begun
        seen: dict[str, job_pb2.Job] = {}
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            seen = {found.job_id: found async for found in self._muster.list() if found.job_id in wanted}
            if {job_id: found.status.phase for job_id, found in seen.items()} == wanted:
                break
            await asyncio.sleep(_POLL_S)
        assert {job_id: found.status.phase for job_id, found in seen.items()} == wanted
        assert {job_id for job_id, found in seen.items() if found.status.failures} == set()
        started = [job_id for job_id, outcome in wanted.items() if outcome == SUCCEEDED]
        assert Counter(self._run_log.read_text().splitlines()) == Counter(
            f"{job_id} 1 worker 0" for job_id in started
        )

    async def _run(self) -> None:
        began = time.monotonic()
        try:
            while True:
                starts = (self.begun * self._started_per_s) % self._rate < self._started_per_s
                call = asyncio.create_task(self._submit(self.begun, starts=starts))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
                self.begun += 1
                await asyncio.sleep(max(0.0, began + self.begun / self._rate - time.monotonic()))
        finally:
            self.seconds = time.monotonic() - began

    async def _submit(self, number: int, *, starts: bool) -> None:
        command = ("sh", "-c", _APPEND, "sh", str(self._run_log)) if starts else ("true",)
        document = job(f"load-{number}", *command, cpu="100m" if starts else _MORE_THAN_A_NODE)
        try:
            (submitted,) = await self._muster.submit(
                document, request_id=f"load-{number}", validation_wait_s=0
            )
        except MusterError as error:
            self.failures.append(error)
            return
        outcome = SUCCEEDED if starts else QUEUED
        self.acknowledged.append(Acknowledged(submitted.job_id, time.monotonic(), outcome))
        self._news.set()
