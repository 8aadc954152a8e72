"""The parts of the client that need no server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import muster
from muster._connection import Retries, channel_options, resolve_address
from muster._messages import job_ref
from muster._streams import RESUME_OVERLAP, JobsCursor, LogCursor
from muster.errors import NotFound
from muster_rpc.v1 import job_pb2, job_service_pb2


@pytest.mark.parametrize(
    ("given", "environment", "resolved"),
    [
        (None, "", "127.0.0.1:8700"),
        (None, "muster.lab:9000", "muster.lab:9000"),
        ("muster.lab", "other:1", "muster.lab:8700"),
        ("http://muster.lab:8700/", "", "muster.lab:8700"),
        ("[::1]", "", "[::1]:8700"),
        ("[::1]:9000", "", "[::1]:9000"),
    ],
)
def test_the_address_is_given_or_found(
    monkeypatch: pytest.MonkeyPatch, given: str | None, environment: str, resolved: str
):
    monkeypatch.setenv("MUSTER_SERVER", environment)
    assert resolve_address(given) == resolved


def test_loopback_is_never_asked_through_a_proxy():
    assert ("grpc.enable_http_proxy", 0) in channel_options("127.0.0.1:8700")
    assert ("grpc.enable_http_proxy", 0) not in channel_options("muster.lab:8700")


@pytest.mark.parametrize("job_id", ["j-abcdefghij234567", "j-aaaaaaaaaaaaaaaa"])
def test_what_looks_like_an_id_is_one(job_id: str):
    assert job_ref(job_id, "ml") == job_service_pb2.JobRef(job_id=job_id)


@pytest.mark.parametrize("name", ["demo", "j-short", "j-aaaaaaaaaaaaaaa1", "j-aaaaaaaaaaaaaaaaa"])
def test_anything_else_is_a_name(name: str):
    assert job_ref(name, "ml") == job_service_pb2.JobRef(name=name, namespace="ml")


@pytest.mark.parametrize("text", ["", "Demo", "1st", "a_b", "a" * 64, "a-", "../etc"])
def test_what_can_be_neither_is_not_found(text: str):
    with pytest.raises(NotFound):
        job_ref(text, "ml")


def test_pauses_double_and_end_at_the_time_limit():
    now = [0.0]
    retries = Retries(5.0, clock=lambda: now[0], jitter=lambda: 0.5)
    pauses: list[float] = []
    while (pause := retries.pause_s()) is not None:
        pauses.append(pause)
        now[0] += pause
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert retries.remaining_s() == pytest.approx(1.9)
    retries.reset()
    assert retries.pause_s() == 0.1


def response(job_id: str, sequence: int, *, deleted: bool = False) -> job_service_pb2.WatchJobsResponse:
    kind = job_service_pb2.WATCH_EVENT_TYPE_DELETED if deleted else job_service_pb2.WATCH_EVENT_TYPE_MODIFIED
    return job_service_pb2.WatchJobsResponse(type=kind, job=job_pb2.Job(job_id=job_id), revision=sequence)


def test_a_watch_of_all_resumes_a_little_early_and_drops_what_it_knows():
    cursor = JobsCursor(job_service_pb2.WatchJobsRequest(namespace="ml"), 0)
    assert cursor.admits(response("a", 5000))
    assert cursor.admits(response("b", 4999))
    assert not cursor.admits(response("b", 4999))
    assert cursor.admits(response("b", 4999, deleted=True))
    assert cursor.request() == job_service_pb2.WatchJobsRequest(
        namespace="ml", after_revision=5000 - RESUME_OVERLAP
    )


def test_a_watch_of_all_jobs_drops_deleted_jobs():
    cursor = JobsCursor(job_service_pb2.WatchJobsRequest(), 0)
    for sequence in range(1, 4 * RESUME_OVERLAP):
        assert cursor.admits(response(f"job{sequence}", sequence))
    assert not cursor.admits(response(f"job{4 * RESUME_OVERLAP - 1}", 4 * RESUME_OVERLAP - 1))


def chunk(data: bytes, *, index: int = 0, attempt: int = 1) -> job_service_pb2.StreamLogsResponse:
    ref = job_pb2.ReplicaRef(role="worker", index=index, attempt=attempt)
    return job_service_pb2.StreamLogsResponse(replica=ref, data=data)


def test_a_resumed_log_stream_skips_what_was_yielded():
    cursor = LogCursor()
    assert cursor.news(chunk(b"one two ")) is not None
    cursor.restart()
    assert cursor.news(chunk(b"one ")) is None
    rest = cursor.news(chunk(b"two three"))
    assert rest is not None
    assert rest.data == b"three"
    assert cursor.news(chunk(b"other", attempt=2)) is not None


def test_importing_the_package_loads_no_transport():
    code = "import muster, sys; sys.exit('grpc' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_every_public_name_can_be_had():
    assert all(getattr(muster, name) for name in muster.__all__)
    with pytest.raises(AttributeError, match="Nothing"):
        getattr(muster, "Nothing")  # noqa: B009 (an attribute that does not exist)


def test_the_synchronous_client_is_generated_from_the_asynchronous_one():
    generator = Path(__file__).parents[3] / "libs/client/generate.py"
    checked = subprocess.run(
        [sys.executable, generator, "--check"], timeout=60, check=False, capture_output=True
    )
    assert (checked.returncode, checked.stderr) == (0, b"")
