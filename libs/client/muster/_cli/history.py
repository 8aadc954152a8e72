"""The history and the output of a job as lines, followed to its end."""

from __future__ import annotations

import asyncio
import codecs
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

import msgspec
from rich.console import Console
from rich.text import Text

from muster._cli import formatting
from muster._cli.output import wants_colour
from muster._messages import replica_label
from muster._streams import LogCursor
from muster.aio import AsyncClient
from muster.errors import MusterError
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2

_WORDS = {
    "JobSubmitted": "submitted",
    "JobValidated": "validated",
    "JobRejected": "rejected",
    "JobWaiting": "waiting",
    "JobPlaced": "placed",
    "JobResized": "resized",
    "JobEvicted": "evicted",
    "JobRestarting": "restarting",
    "ReplicasChanged": "replicas",
    "ScaleProposed": "proposed",
    "CommandRequested": "command",
    "JobAdopted": "adopted",
    "JobFinished": "finished",
}
_STYLES = {
    "rejected": "red",
    "waiting": "yellow",
    "placed": "cyan",
    "resized": "cyan",
    "evicted": "yellow",
    "adopted": "cyan",
    "restarting": "yellow",
    "replicas": "dim",
    "proposed": "dim",
    "running": "green",
}
_REASONED = frozenset(
    {"JobWaiting", "JobResized", "JobEvicted", "JobRestarting", "JobAdopted", "JobFinished"}
)
_WORD_WIDTH = max(len(word) for word in _WORDS.values())

Moment = tuple[int, str, str]


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line: time of day, a word for the event, a sentence; ``style`` colours the word."""

    time: str
    word: str
    text: str
    style: str = ""

    @property
    def head(self) -> str:
        """Return time and word, aligned."""
        return f"{self.time}  {self.word:<{_WORD_WIDTH}}"


class JobHistory:
    """Converts successive states of one job to lines. With ``from_start`` the first state includes the whole history."""

    def __init__(self, *, from_start: bool) -> None:
        self._from_start = from_start
        self._seen: set[Moment] = set()
        self._phase = job_pb2.PHASE_UNSPECIFIED
        self._attempt = 0

    def new_lines(self, job: job_pb2.Job) -> Iterator[HistoryRow]:
        """Return the new lines of this state."""
        first = self._phase == job_pb2.PHASE_UNSPECIFIED
        moments = {_moment(entry): entry for entry in job.status.history}
        fresh = [entry for moment, entry in moments.items() if moment not in self._seen]
        self._seen = set(moments)
        if first and not self._from_start:
            yield self._now(job, counted=True)
        else:
            for entry in fresh:
                yield _line(entry)
            if self._has_come_up(job):
                yield self._now(job, counted=not _reason_of(job))
        self._phase, self._attempt = job.status.phase, job.status.attempt

    def _has_come_up(self, job: job_pb2.Job) -> bool:
        """Return whether the gang started to run since the last state: no event states it, it follows from the replicas."""
        was = (self._phase, self._attempt)
        now = (job_pb2.PHASE_RUNNING, job.status.attempt)
        return job.status.phase == job_pb2.PHASE_RUNNING and was != now

    def _now(self, job: job_pb2.Job, *, counted: bool) -> HistoryRow:
        """Return the state of the job. Replicas are not ``counted`` in a past state: some may have ended since."""
        word = formatting.phase_of(job).lower()
        at = next((e.at for e in reversed(job.status.history)), job.status.submitted_at)
        parts = (f"{formatting.running_of_all(job)} replicas" if counted else "", _reason_of(job))
        text = "; ".join(filter(None, parts))
        return HistoryRow(time=formatting.clock(at), word=word, text=text, style=_STYLES.get(word, ""))


def _reason_of(job: job_pb2.Job) -> str:
    return job.status.reason.message or job.status.reason.code


def _moment(entry: job_pb2.HistoryEntry) -> Moment:
    return (entry.at.ToMicroseconds(), event_name(entry.event), entry.message)


def _line(entry: job_pb2.HistoryEntry) -> HistoryRow:
    event = event_name(entry.event)
    word = _WORDS.get(event, event)
    text = entry.message
    if event in _REASONED:
        text = (
            f"{entry.message} ({entry.reason})"
            if entry.message and entry.reason
            else entry.message or entry.reason
        )
    elif event == "CommandRequested":
        text = f"{entry.reason} {entry.message}".strip()
    if not text and entry.reason.lower() != word:
        text = entry.reason
    return HistoryRow(time=formatting.clock(entry.at), word=word, text=text, style=_STYLES.get(word, ""))


_COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)


_LONGEST_LINE = 1 << 20
"""The characters of an incomplete line that are kept; a longer line is printed in parts."""


class LogLines:
    """Assembles chunks of output to whole lines, prefixed with the replica's name if there are several.

    A line above 1 MiB is not assembled: with prefixes it is split, without them its parts are printed as they come.

    ``out`` is written directly: a job may write faster than a renderer can lay out.
    """

    def __init__(self, *, out: TextIO, prefixed: bool, colour: bool) -> None:
        self._out = out
        self._prefixed = prefixed
        self._colour = colour
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._open: dict[str, str] = {}

    def write(self, replica: str, data: bytes) -> None:
        """Add output of ``replica``; whole lines are printed."""
        decoder = self._decoders.setdefault(replica, codecs.getincrementaldecoder("utf-8")("replace"))
        text = self._open.pop(replica, "") + decoder.decode(data)
        *lines, rest = text.split("\n")
        if len(rest) > _LONGEST_LINE:
            self._put(replica, lines)
            self._put_part(replica, rest)
            return
        if rest:
            self._open[replica] = rest
        self._put(replica, lines)

    def end(self) -> None:
        """Print last lines without a newline."""
        for replica, rest in self._open.items():
            self._put(replica, [rest])
        self._open.clear()

    def _put(self, replica: str, lines: list[str]) -> None:
        if lines:
            prefix = self._prefix(replica)
            self._out.write("".join(f"{prefix}{line}\n" for line in lines))
            self._out.flush()

    def _put_part(self, replica: str, part: str) -> None:
        if self._prefixed:
            self._put(replica, [part])
        else:
            self._out.write(part)
            self._out.flush()

    def _prefix(self, replica: str) -> str:
        if not self._prefixed:
            return ""
        if not self._colour:
            return f"[{replica}] "
        index = (
            sorted(self._decoders).index(replica)
            if len(self._decoders) < len(_COLOURS)
            else sum(replica.encode())
        )
        return f"\x1b[{_COLOURS[index % len(_COLOURS)]}m[{replica}]\x1b[0m "


class HistoryPrinter:
    """Prints event lines; ``label`` distinguishes several jobs."""

    def __init__(self, console: Console, *, label: str = "") -> None:
        self._console = console
        self._label = f"{label}  " if label else ""

    def tell(self, line: HistoryRow) -> None:
        """Print one event line."""
        shown = Text.assemble((self._label, "bold"), (line.head, line.style), "  ", line.text)
        shown.rstrip()
        self._console.print(shown, soft_wrap=True)

    def say(self, text: str, *, style: str = "") -> None:
        """Print a sentence of the command itself."""
        self._console.print(Text.assemble((self._label, "bold"), (text, style)), soft_wrap=True)


def log_lines(console: Console, *, prefixed: bool) -> LogLines:
    """Print log lines to standard output, coloured like the console."""
    return LogLines(out=sys.stdout, prefixed=prefixed, colour=wants_colour(console))


_LAST_WORDS_S = 10.0
_WRITING = frozenset({job_pb2.PHASE_LAUNCHING, job_pb2.PHASE_RUNNING})


class Follower:
    """Follows one job. With ``lines`` logs are printed too; without ``printer`` events are not."""

    def __init__(
        self, client: AsyncClient, job_id: str, *, printer: HistoryPrinter | None, lines: LogLines | None
    ) -> None:
        self._client = client
        self._job_id = job_id
        self._scribe = printer
        self._lines = lines
        self._cursor = LogCursor()
        self._reading: asyncio.Task[None] | None = None
        self._complete = False

    async def follow(self) -> job_pb2.Job:
        """Follow to the end and return the final state of the job."""
        history = JobHistory(from_start=True)
        last = job_pb2.Job()
        try:
            async for last in self._client.watch(self._job_id):
                if self._scribe:
                    for line in history.new_lines(last):
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
