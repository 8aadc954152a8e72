"""The events of a job as lines, as they happen.

Lines come from the job's history, not from changes of its phase: several events may happen between two updates, and none
may be missed.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from muster._cli import words
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
    "JobFinished": "finished",
}
_STYLES = {
    "rejected": "red",
    "waiting": "yellow",
    "placed": "cyan",
    "resized": "cyan",
    "evicted": "yellow",
    "restarting": "yellow",
    "replicas": "dim",
    "proposed": "dim",
    "running": "green",
}
_REASONED = frozenset({"JobWaiting", "JobResized", "JobEvicted", "JobRestarting", "JobFinished"})
_WORD_WIDTH = max(len(word) for word in _WORDS.values())

Moment = tuple[int, str, str]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line: time of day, a word for the event, a sentence; ``style`` colours the word."""

    time: str
    word: str
    text: str
    style: str = ""

    @property
    def head(self) -> str:
        """Return time and word, aligned."""
        return f"{self.time}  {self.word:<{_WORD_WIDTH}}"


class Story:
    """Converts successive states of one job to lines. With ``from_start`` the first state includes the whole history."""

    def __init__(self, *, from_start: bool) -> None:
        self._from_start = from_start
        self._told: set[Moment] = set()
        self._phase = job_pb2.PHASE_UNSPECIFIED
        self._attempt = 0

    def tell(self, job: job_pb2.Job) -> Iterator[Line]:
        """Return the new lines of this state."""
        first = self._phase == job_pb2.PHASE_UNSPECIFIED
        moments = {_moment(entry): entry for entry in job.status.history}
        fresh = [entry for moment, entry in moments.items() if moment not in self._told]
        self._told = set(moments)
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

    def _now(self, job: job_pb2.Job, *, counted: bool) -> Line:
        """Return the state of the job. Replicas are not ``counted`` in a past state: some may have ended since."""
        word = words.phase_of(job).lower()
        at = next((e.at for e in reversed(job.status.history)), job.status.submitted_at)
        parts = (f"{words.running_of_all(job)} replicas" if counted else "", _reason_of(job))
        text = "; ".join(filter(None, parts))
        return Line(time=words.clock(at), word=word, text=text, style=_STYLES.get(word, ""))


def _reason_of(job: job_pb2.Job) -> str:
    return job.status.reason.message or job.status.reason.code


def _moment(entry: job_pb2.HistoryEntry) -> Moment:
    return (entry.at.ToMicroseconds(), event_name(entry.event), entry.message)


def _line(entry: job_pb2.HistoryEntry) -> Line:
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
    return Line(time=words.clock(entry.at), word=word, text=text, style=_STYLES.get(word, ""))
