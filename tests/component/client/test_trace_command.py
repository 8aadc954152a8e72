"""``muster trace`` against a store that answers late, wrongly, or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING
from zlib import crc32

import pytest

from muster_rpc.v1 import job_pb2

if TYPE_CHECKING:
    from tests.component.client.conftest import GatewayDouble, Muster

MakeJob = Callable[..., job_pb2.Job]


@pytest.fixture
def store() -> Iterator[tuple[str, list[bytes]]]:
    """A trace store that gives each of its answers once, the last one for ever; ``b""`` is 404."""
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(200 if answer else 404)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the base class's name)
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()
    thread.join()


def spans(*names: str, job_id: str = "") -> bytes:
    """A trace whose first span is the root, the same for all; the others are the job's."""
    about = [{"key": "muster.job_id", "value": {"stringValue": job_id}}]
    made = [
        {
            "traceId": "0af7651916cd43dd8448eb211c80319c",
            "spanId": f"{1:016x}" if number == 0 else f"{crc32(job_id.encode()):08x}{number + 1:08x}",
            "parentSpanId": "" if number == 0 else f"{1:016x}",
            "name": name,
            "attributes": about if number else [],
            "startTimeUnixNano": str(1_700_000_000_000_000_000 + number),
            "endTimeUnixNano": str(1_700_000_001_000_000_000),
        }
        for number, name in enumerate(names)
    ]
    return json.dumps({"result": {"resourceSpans": [{"scopeSpans": [{"spans": made}]}]}}).encode()


LIFE = ("queued", "place", "launch", "run", "clean up")


def test_a_trace_is_drawn_when_its_last_spans_have_come(
    muster: Muster, gateway: GatewayDouble, job: MakeJob, store: tuple[str, list[bytes]]
):
    url, answers = store
    gateway.trace_query_url = url
    gateway.publish(job(job_pb2.PHASE_SUCCEEDED, revision=1))
    answers += [b"", spans("SubmitJob", "clean up")]
    done = muster("trace", "demo")
    assert done.exit_code == 0
    assert "2 spans of 1 service" in done.stdout
    assert "└─ clean up" in done.stdout
    assert json.loads(muster("trace", "demo", "-o", "json").stdout)["result"]


def test_a_trace_is_drawn_by_its_id(muster: Muster, store: tuple[str, list[bytes]]):
    url, answers = store
    answers.append(spans("ScaleJob"))
    done = muster("trace", "0af7651916cd43dd8448eb211c80319c", "--url", url)
    assert (done.exit_code, "ScaleJob" in done.stdout) == (0, True)
    assert muster("trace", "unknown", "--url", url).exit_code == 4


def test_an_unavailable_or_empty_trace_store_is_reported(
    muster: Muster, gateway: GatewayDouble, job: MakeJob, store: tuple[str, list[bytes]]
):
    url, answers = store
    gateway.publish(job(job_pb2.PHASE_SUCCEEDED, revision=1))
    assert muster("trace", "demo").exit_code == 4
    away = muster("trace", "demo", "--url", "http://127.0.0.1:1")
    assert (away.exit_code, "cannot reach the trace store" in away.stderr) == (5, True)
    answers.append(b"<html>")
    assert muster("trace", "demo", "--url", url).exit_code == 1
    assert muster("trace", "demo", "--url", "file:///etc/passwd").exit_code == 1


def test_every_span_of_a_job_that_has_just_ended_is_waited_for(
    muster: Muster, gateway: GatewayDouble, job: MakeJob, store: tuple[str, list[bytes]]
):
    url, answers = store
    ended = job(job_pb2.PHASE_SUCCEEDED, revision=1)
    ended.status.finished_at.GetCurrentTime()
    ended.status.attempt = 1
    gateway.publish(ended)
    answers += [spans("SubmitJob"), spans("SubmitJob", "running worker-0"), spans("SubmitJob", "clean up")]
    answers.append(spans("SubmitJob", *LIFE, job_id=ended.job_id))
    drawn = muster("trace", "demo", "--url", url).stdout
    assert all(name in drawn for name in LIFE)


def test_the_end_of_another_job_of_the_document_is_not_taken_for_its_own(
    muster: Muster, gateway: GatewayDouble, job: MakeJob, store: tuple[str, list[bytes]]
):
    url, answers = store
    ended = job(job_pb2.PHASE_SUCCEEDED, revision=1)
    ended.status.finished_at.GetCurrentTime()
    ended.status.attempt = 1
    gateway.publish(ended)
    others = spans("SubmitJob", *LIFE, job_id="j-bbbbbbbbbbbbbbbb")
    answers += [others, others + spans("SubmitJob", "validate", *LIFE, job_id=ended.job_id)]
    assert "validate" in muster("trace", "demo", "--url", url).stdout
