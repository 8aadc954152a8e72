"""Each entry of a job's history becomes one line, in order."""

from __future__ import annotations

import io

import pytest

from muster._cli import formatting
from muster._cli.formatting import exit_code, outcome_line
from muster._cli.history import JobHistory, LogLines
from muster_rpc.v1 import job_pb2

START_S = 1_700_000_000
HISTORY = (
    (job_pb2.JOB_EVENT_TYPE_JOB_SUBMITTED, "Submitted", "by ann"),
    (job_pb2.JOB_EVENT_TYPE_JOB_WAITING, "InsufficientResources", "needs 2 GPUs, n1 has 1"),
    (job_pb2.JOB_EVENT_TYPE_JOB_PLACED, "Placed", "attempt 1; n1: worker-0"),
    (job_pb2.JOB_EVENT_TYPE_REPLICAS_CHANGED, "ReplicasChanged", "worker-0 running"),
    (job_pb2.JOB_EVENT_TYPE_JOB_RESIZED, "Grown", "dragon: 1 to 2 workers"),
    (job_pb2.JOB_EVENT_TYPE_COMMAND_REQUESTED, "cancel", "by ann"),
)


def state(phase: job_pb2.Phase.ValueType, entries: int, *, running: int = 0) -> job_pb2.Job:
    job = job_pb2.Job(job_id="j-aaaaaaaaaaaaaaaa", name="demo")
    job.status.phase = phase
    job.status.reason.message = "so it is"
    job.status.submitted_at.seconds = START_S
    for offset, (event, code, message) in enumerate(HISTORY[:entries]):
        entry = job.status.history.add(event=event, reason=code, message=message)
        entry.at.seconds = START_S + offset
    for index in range(running):
        job.status.replicas.add(role="worker", index=index, state=job_pb2.REPLICA_STATE_RUNNING)
    return job


def lines_of(history: JobHistory, job: job_pb2.Job) -> list[tuple[str, str]]:
    return [(line.word, line.text) for line in history.new_lines(job)]


def test_events_between_two_looks_are_not_missed():
    history = JobHistory(from_start=True)
    assert lines_of(history, state(job_pb2.PHASE_SUBMITTED, 1)) == [("submitted", "by ann")]
    assert lines_of(history, state(job_pb2.PHASE_RUNNING, 4, running=1)) == [
        ("waiting", "needs 2 GPUs, n1 has 1 (InsufficientResources)"),
        ("placed", "attempt 1; n1: worker-0"),
        ("replicas", "worker-0 running"),
        ("running", "so it is"),
    ]
    assert lines_of(history, state(job_pb2.PHASE_RUNNING, 6, running=1)) == [
        ("resized", "dragon: 1 to 2 workers (Grown)"),
        ("command", "cancel by ann"),
    ]
    assert lines_of(history, state(job_pb2.PHASE_RUNNING, 6, running=1)) == []


def test_a_submission_without_a_submitter_is_shown_once():
    anonymous = state(job_pb2.PHASE_SUBMITTED, 1)
    anonymous.status.history[0].message = ""
    assert lines_of(JobHistory(from_start=True), anonymous) == [("submitted", "")]


def test_a_watch_begins_with_the_current_phase():
    history = JobHistory(from_start=False)
    assert lines_of(history, state(job_pb2.PHASE_QUEUED, 2)) == [("queued", "- replicas; so it is")]
    assert lines_of(history, state(job_pb2.PHASE_PLACED, 3)) == [("placed", "attempt 1; n1: worker-0")]


@pytest.mark.parametrize(
    ("phase", "code", "line"),
    [
        (job_pb2.PHASE_SUCCEEDED, 0, "demo succeeded after 1m15s"),
        (job_pb2.PHASE_FAILED, 1, "demo failed after 1m15s: so it is"),
        (job_pb2.PHASE_CANCELLED, 1, "demo was cancelled after 1m15s: so it is"),
        (job_pb2.PHASE_REJECTED, 3, "demo was rejected after 1m15s: so it is"),
    ],
)
def test_an_end_is_a_sentence_and_a_code(phase: job_pb2.Phase.ValueType, code: int, line: str):
    job = state(phase, 1)
    job.status.finished_at.seconds = START_S + 75
    assert (exit_code(job), outcome_line(job)) == (code, line)


def test_log_lines_are_whole_and_named():
    out = io.StringIO()
    lines = LogLines(out=out, prefixed=True, colour=False)
    lines.write("worker-0", b"one\ntw")
    lines.write("worker-1", "größe".encode()[:3])
    lines.write("worker-0", b"o\n")
    lines.write("worker-1", "größe".encode()[3:])
    lines.end()
    assert out.getvalue() == "[worker-0] one\n[worker-0] two\n[worker-1] größe\n"


def test_a_single_replica_is_not_named():
    out = io.StringIO()
    LogLines(out=out, prefixed=False, colour=True).write("worker-0", b"one\n")
    assert out.getvalue() == "one\n"


@pytest.mark.parametrize(
    ("seconds", "age", "duration"),
    [
        (0.85, "0s", "850ms"),
        (4.24, "4s", "4.2s"),
        (59, "59s", "59s"),
        (192, "3m12s", "3m12s"),
        (7500, "2h05m", "2h05m"),
        (3 * 86400 + 4 * 3600, "3d04h", "3d04h"),
        (40 * 86400, "40d", "40d"),
    ],
)
def test_times_are_short(seconds: float, age: str, duration: str):
    assert (formatting.age(seconds), formatting.duration(seconds)) == (age, duration)


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_line_of_60_mb_is_printed_as_it_comes_and_not_kept(prefixed: bool):
    out = io.StringIO()
    lines = LogLines(out=out, prefixed=prefixed, colour=False)
    chunk = b"x" * 65_536
    late = 0
    for number in range(1, 961):
        lines.write("worker-0", chunk)
        late = max(late, number * len(chunk) - out.tell())
    lines.write("worker-0", b"\nlast\n")

    assert late <= 2 << 20
    text = out.getvalue()
    head = "[worker-0] " if prefixed else ""
    assert text.count("x") == 960 * len(chunk)
    assert text.endswith(f"\n{head}last\n")
    assert prefixed or text == "x" * 960 * len(chunk) + "\nlast\n"
