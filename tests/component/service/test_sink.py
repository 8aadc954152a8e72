"""The trace store of one machine, as a process: fed by the real exporter, asked as Jaeger is asked."""

import asyncio
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from muster_service.trace_context import SpanRef, span_ref, trace_ref
from muster_service.tracing import SpanEvent, Telemetry

LIMIT_S = 30.0


class Sink:
    """A running sink."""

    def __init__(self, process: asyncio.subprocess.Process, ready: dict[str, str]) -> None:
        self.process = process
        self.endpoint = f"http://{ready['grpc']}"
        self.query = f"http://{ready['http']}"

    async def ask(self, path: str) -> tuple[int, dict[str, object]]:
        def get() -> tuple[int, dict[str, object]]:
            try:
                with urllib.request.urlopen(self.query + path, timeout=10) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        return await asyncio.to_thread(get)

    async def spans(self, ref: SpanRef) -> list[dict[str, object]]:
        """Return the spans of a trace in Jaeger's form, of all services."""
        _, answer = await self.ask(f"/api/v3/traces/{ref.trace_id}")
        resources = cast(
            "dict[str, list[dict[str, list[dict[str, list[dict[str, object]]]]]]]", answer["result"]
        )
        return [
            span
            for one in resources["resourceSpans"]
            for scope in one["scopeSpans"]
            for span in scope["spans"]
        ]

    async def end(self, signum: signal.Signals) -> int:
        self.process.send_signal(signum)
        async with asyncio.timeout(LIMIT_S):
            await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


StartSink = Callable[[], Awaitable[Sink]]


@pytest.fixture
async def start_sink(tmp_path: Path) -> AsyncIterator[StartSink]:
    started: list[Sink] = []

    async def start() -> Sink:
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))
        }
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "muster_local.traces"),
            env=environ | {"MUSTER_SINK_DIRECTORY": str(tmp_path / "traces"), "MUSTER_SINK_MAX_MIB": "8"},
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr
        line = await asyncio.wait_for(process.stderr.readline(), LIMIT_S)
        ready = json.loads(line)
        assert ready["msg"] == "ready", line
        started.append(Sink(process, ready))
        return started[-1]

    yield start
    for sink in started:
        if sink.process.returncode is None:
            sink.process.kill()
            await sink.process.communicate()


async def export(sink: Sink, service: str, record: Callable[[Telemetry], object]) -> None:
    telemetry = Telemetry.start(service, f"{service}-0", sink.endpoint)
    record(telemetry)
    await asyncio.to_thread(telemetry.flush)
    await asyncio.to_thread(telemetry.shutdown)


async def test_a_trace_is_answered_as_jaeger_would(start_sink: StartSink):
    sink = await start_sink()
    root = trace_ref("job/1")

    await export(
        sink,
        "scheduler",
        lambda telemetry: (
            telemetry.record(
                "place",
                parent=root,
                key="place/1",
                start_ns=1_700_000_000_000_000_001,
                end_ns=1_700_000_000_000_000_002,
                attributes={"attempt": 1, "node": "n1"},
                status_error="no capacity",
                events=[SpanEvent("tried", 1_700_000_000_000_000_001)],
            ).traceparent
        ),
    )

    status, answer = await sink.ask(f"/api/v3/traces/{root.trace_id}")
    assert status == 200
    result = cast("dict[str, list[dict[str, dict[str, list[object]]]]]", answer["result"])
    assert {"key": "service.name", "value": {"stringValue": "scheduler"}} in (
        result["resourceSpans"][0]["resource"]["attributes"]
    )
    (span,) = await sink.spans(root)
    assert span == {
        "traceId": root.trace_id,
        "spanId": span_ref(root, "place/1").span_id,
        "parentSpanId": root.span_id,
        "name": "place",
        "kind": 1,
        "flags": span["flags"],
        "startTimeUnixNano": "1700000000000000001",
        "endTimeUnixNano": "1700000000000000002",
        "attributes": [
            {"key": "attempt", "value": {"intValue": "1"}},
            {"key": "node", "value": {"stringValue": "n1"}},
        ],
        "events": [{"timeUnixNano": "1700000000000000001", "name": "tried"}],
        "status": {"message": "no capacity", "code": 2},
    }


async def test_an_unknown_trace_and_an_invalid_id_have_different_errors(start_sink: StartSink):
    sink = await start_sink()

    assert await sink.ask("/api/v3/traces/" + "a" * 32) == (
        404,
        {"error": {"httpCode": 404, "message": "No traces found"}},
    )
    status, answer = await sink.ask("/api/v3/traces/xyz")
    assert (status, cast("dict[str, object]", answer["error"])["httpCode"]) == (400, 400)
    assert (await sink.ask("/elsewhere"))[0] == 404


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
async def test_spans_outlive_the_process(start_sink: StartSink, signum: signal.Signals):
    first = await start_sink()
    root = trace_ref("job/1")
    await export(first, "a", lambda telemetry: _record(telemetry, root, "one"))

    code = await first.end(signum)
    second = await start_sink()
    await export(second, "b", lambda telemetry: _record(telemetry, root, "two"))

    assert code == (0 if signum == signal.SIGTERM else -signum)
    assert {span["name"] for span in await second.spans(root)} == {"one", "two"}


async def test_a_span_that_comes_twice_is_kept_once(start_sink: StartSink):
    sink = await start_sink()
    root = trace_ref("job/1")

    for _ in range(2):
        await export(sink, "a", lambda telemetry: _record(telemetry, root, "one"))

    assert [span["name"] for span in await sink.spans(root)] == ["one"]


def _record(telemetry: Telemetry, root: SpanRef, name: str) -> None:
    telemetry.record(name, parent=root, key=name, start_ns=1, end_ns=2)
