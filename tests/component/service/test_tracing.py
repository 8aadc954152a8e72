"""Spans reach a real receiver, recorded ones under ids that anyone can work out."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from muster_service import tracing
from muster_service.trace_context import SpanRef, current_ref, span_ref, trace_ref
from muster_service.tracing import SpanEvent, Telemetry
from muster_testing.otlp import OtlpReceiver

HOUR_NS = 3_600_000_000_000


async def flushed(telemetry: Telemetry) -> None:
    await asyncio.to_thread(telemetry.shutdown)


async def test_a_recorded_span_has_its_true_times_and_everything_it_was_given(receiver: OtlpReceiver):
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint)
    end_ns = time.time_ns()
    parent = trace_ref("job/1")

    telemetry.record(
        "queued",
        parent=parent,
        key="queued/1",
        start_ns=end_ns - HOUR_NS,
        end_ns=end_ns,
        attributes={"queue": "a", "attempt": 1, "nodes": ["n1", "n2"]},
        status_error="evicted",
        events=[SpanEvent("overtaken", end_ns - 5, {"by": "job/2"})],
    )

    (span,) = await receiver.wait_for(bool)
    assert (span.name, span.service, span.kind) == ("queued", "demo", "internal")
    assert (span.start_ns, span.end_ns) == (end_ns - HOUR_NS, end_ns)
    assert (span.trace_id, span.parent_id) == (parent.trace_id, parent.span_id)
    assert span.attributes == {"queue": "a", "attempt": 1, "nodes": ["n1", "n2"]}
    assert (span.error, span.events) == ("evicted", ("overtaken",))
    await flushed(telemetry)


async def test_a_span_that_is_recorded_again_after_a_crash_has_the_same_id(receiver: OtlpReceiver):
    parent = trace_ref("job/1")
    for instance in ("before-the-crash", "after-the-crash"):
        telemetry = Telemetry.start("demo", instance, receiver.endpoint)
        ref = telemetry.record("running", parent=parent, key="running/0", start_ns=1, end_ns=2)
        assert ref == span_ref(parent, "running/0")
        await flushed(telemetry)

    spans = receiver.spans()
    assert len(spans) == 2
    assert {span.span_id for span in spans} == {span_ref(parent, "running/0").span_id}


async def test_a_child_can_be_recorded_before_its_parent(receiver: OtlpReceiver):
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint)
    root = trace_ref("job/1")
    launch = span_ref(root, "launch/1")

    telemetry.record("replica", parent=launch, key="replica/0", start_ns=2, end_ns=3)
    telemetry.record("launch", parent=root, key="launch/1", start_ns=1, end_ns=4)
    await flushed(telemetry)

    replica, parent = receiver.spans()
    assert replica.parent_id == parent.span_id


async def test_the_root_of_a_derived_trace_can_be_recorded(receiver: OtlpReceiver):
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint)

    ref = telemetry.record("job", parent=None, key="job/1", start_ns=1, end_ns=2)
    await flushed(telemetry)

    (span,) = receiver.spans()
    assert ref == trace_ref("job/1")
    assert (span.trace_id, span.span_id, span.parent_id) == (ref.trace_id, ref.span_id, "")


async def test_recording_within_a_live_span_does_not_tie_them_together(receiver: OtlpReceiver):
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint)

    with telemetry.span("live") as live:
        telemetry.record("job", parent=None, key="job/1", start_ns=1, end_ns=2)
        assert current_ref() == live.ref
    await flushed(telemetry)

    job, span = receiver.spans()
    assert job.trace_id == trace_ref("job/1").trace_id != span.trace_id


async def test_what_was_not_sampled_is_not_recorded(receiver: OtlpReceiver):
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint)
    parent = SpanRef(trace_id="a" * 32, span_id="b" * 16, sampled=False)

    ref = telemetry.record("queued", parent=parent, key="queued", start_ns=1, end_ns=2)
    await flushed(telemetry)

    assert not ref.sampled
    assert receiver.spans() == []


async def test_an_exception_marks_a_live_span_as_failed(receiver: OtlpReceiver):
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint)

    with pytest.raises(ValueError), telemetry.span("decide", attributes={"job": "a"}):
        raise ValueError("no such node")
    await flushed(telemetry)

    (span,) = receiver.spans()
    assert (span.error, span.attributes, span.events) == (
        "ValueError: no such node",
        {"job": "a"},
        ("exception",),
    )


def test_without_a_receiver_context_is_still_propagated():
    telemetry = Telemetry.start("demo", "demo-0")

    with telemetry.span("outer") as outer:
        headers = telemetry.inject()
        assert telemetry.extract(headers) == outer.ref
        with telemetry.span("inner") as inner:
            assert inner.ref.trace_id == outer.ref.trace_id
    assert telemetry.inject() == {}
    assert telemetry.record("x", parent=outer.ref, key="k", start_ns=1, end_ns=2) == span_ref(outer.ref, "k")
    telemetry.shutdown()


def test_without_a_span_there_is_still_something_to_refer_to(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    telemetry = Telemetry.start("demo", "demo-0")

    with telemetry.span("disabled") as live:
        assert SpanRef.parse(live.ref.traceparent) == live.ref
        assert not live.ref.sampled


def test_a_receiver_that_is_away_does_not_hold_up_the_end():
    telemetry = Telemetry.start("demo", "demo-0", "http://127.0.0.1:9")
    for number in range(2000):
        telemetry.record("x", parent=None, key=f"{number}", start_ns=1, end_ns=2)

    started = time.monotonic()
    telemetry.shutdown(timeout_s=0.5)

    assert time.monotonic() - started < 3


async def test_spans_that_are_not_exported_are_counted(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tracing, "_MAX_QUEUE", 512)
    dropped: list[tuple[str, int]] = []
    telemetry = Telemetry.start(
        "demo", "demo-0", receiver.endpoint, on_dropped=lambda reason, spans: dropped.append((reason, spans))
    )
    for number in range(2000):
        telemetry.record("x", parent=None, key=f"{number}", start_ns=1, end_ns=2)
    await flushed(telemetry)

    assert dropped
    assert {reason for reason, _ in dropped} == {"queue_full"}
    assert len(receiver.spans()) + sum(spans for _, spans in dropped) == 2000


async def test_spans_whose_export_fails_are_counted(monkeypatch: pytest.MonkeyPatch):
    class Refusing(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            return SpanExportResult.FAILURE

    def refusing(_: str) -> Refusing:
        return Refusing()

    monkeypatch.setattr(tracing, "_otlp_exporter", refusing)
    dropped: list[tuple[str, int]] = []
    telemetry = Telemetry.start(
        "demo", "demo-0", "http://nowhere", on_dropped=lambda reason, spans: dropped.append((reason, spans))
    )
    telemetry.record("x", parent=None, key="1", start_ns=1, end_ns=2)
    await flushed(telemetry)

    assert dropped == [("export_failed", 1)]
