"""Spans reach a real receiver, recorded ones under ids that anyone can work out."""

import asyncio
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from muster_service import span_export
from muster_service.span_export import DroppedSpans, OtlpProcessor
from muster_service.trace_context import SpanRef, current_ref, span_ref, trace_ref
from muster_service.trace_resource import resource_attributes
from muster_service.tracing import SpanEvent, SpanLink, Telemetry, failure_event, link_current
from muster_service.version import VERSION
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


async def test_the_flag_of_a_client_does_not_hide_a_trace(receiver: OtlpReceiver):
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint)
    unsampled = SpanRef(trace_id="a" * 32, span_id="b" * 16, sampled=False)

    with telemetry.span("SubmitJob", parent=unsampled) as submit:
        assert submit.ref.sampled
    telemetry.record("queued", parent=unsampled, key="queued", start_ns=1, end_ns=2)
    await flushed(telemetry)

    assert [span.name for span in receiver.spans()] == ["SubmitJob", "queued"]


async def test_every_service_samples_the_same_traces(receiver: OtlpReceiver):
    parents = [trace_ref(f"job/{number}") for number in range(200)]
    for service in ("one", "other"):
        telemetry = Telemetry.start(service, service, receiver.endpoint, sample=0.25)
        for parent in parents:
            telemetry.record("queued", parent=parent, key="queued", start_ns=1, end_ns=2)
        await flushed(telemetry)

    traces = {
        service: {span.trace_id for span in receiver.spans() if span.service == service}
        for service in ("one", "other")
    }
    assert traces["one"] == traces["other"]
    assert 20 < len(traces["one"]) < 80


async def test_a_span_names_its_version_and_where_it_was_recorded(
    receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=ml")
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint, environment="staging")
    telemetry.record("x", parent=None, key="k", start_ns=1, end_ns=2, attributes={"gpus": "", "n": 0})
    await flushed(telemetry)

    (span,) = receiver.spans()
    assert span.scope == ("muster", VERSION)
    assert span.attributes == {"n": 0}
    expected = {
        "service.name": "demo",
        "service.namespace": "muster",
        "service.version": VERSION,
        "service.instance.id": "demo-0",
        "deployment.environment.name": "staging",
        "host.name": socket.gethostname(),
        "team": "ml",
    }
    assert {name: span.resource.get(name) for name in expected} == expected
    assert "" not in span.resource.values()


def test_in_a_pod_the_resource_names_the_pod(tmp_path: Path):
    namespace = tmp_path / "namespace"
    namespace.write_text("training\n")
    found = resource_attributes(
        "gateway",
        "gateway-7",
        environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NODE_NAME": "n1"},
        hostname="gateway-7c9",
        pod_namespace=namespace,
    )
    assert {name: value for name, value in found.items() if not name.startswith("service.")} == {
        "host.name": "n1",
        "k8s.pod.name": "gateway-7c9",
        "k8s.namespace.name": "training",
        "k8s.node.name": "n1",
    }
    outside = resource_attributes(
        "gateway", "g", environ={"POD_NAME": "no"}, hostname="", pod_namespace=namespace
    )
    assert not any(name.startswith(("k8s.", "host.")) for name in outside)


async def test_links_kinds_and_failures_are_exported(receiver: OtlpReceiver):
    telemetry = Telemetry.start("demo", "demo-0", receiver.endpoint)
    command, root = trace_ref("command"), trace_ref("job/1")

    telemetry.record(
        "resize",
        parent=root,
        key="resize",
        start_ns=1,
        end_ns=2,
        role="producer",
        events=[failure_event("evicted", 2, kind="NodeLost", message="n1 is gone", node="n1", gpus="")],
        links=[SpanLink(command, {"muster.relation": "command"})],
    )
    with telemetry.span("ScaleJob", role="server"):
        link_current(root, {"muster.relation": "job"})
    await flushed(telemetry)

    resize, scale = receiver.spans()
    assert (resize.kind, scale.kind) == ("producer", "server")
    assert resize.events == ("evicted",)
    assert resize.event_attributes == (
        {"exception.type": "NodeLost", "exception.message": "n1 is gone", "node": "n1"},
    )
    (to_command,), (to_job,) = resize.links, scale.links
    assert (to_command.trace_id, to_command.span_id) == (command.trace_id, command.span_id)
    assert (to_job.trace_id, to_job.span_id) == (root.trace_id, root.span_id)
    assert to_job.attributes == {"muster.relation": "job"}


class _Refusing(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.FAILURE


def test_spans_that_cannot_be_sent_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture):
    provider = TracerProvider(shutdown_on_exit=False)
    counted: Counter[str] = Counter()
    processor = OtlpProcessor(
        "collector:4317",
        lambda reason, number: counted.update({reason: number}),
        exporter=_Refusing(),
        max_queue=8,
    )
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("test")

    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            tracer.start_span("x").end()
            processor.force_flush()
    provider.shutdown()

    assert counted == {"export_failed": 5}
    assert processor.dropped.total == 5
    (line,) = caplog.records
    assert line.__dict__["muster_fields"] == {"endpoint": "collector:4317", "dropped": 1, "in_total": 1}


def test_a_full_queue_drops_and_counts():
    released = threading.Event()

    class Slow(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            released.wait(10)
            return SpanExportResult.SUCCESS

    provider = TracerProvider(shutdown_on_exit=False)
    processor = OtlpProcessor("collector:4317", exporter=Slow(), max_queue=4)
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("test")

    for _ in range(4):
        tracer.start_span("taken").end()
    while processor.queued:
        time.sleep(0.01)
    for _ in range(10):
        tracer.start_span("late").end()
    assert processor.dropped.total == 6
    released.set()
    provider.shutdown()


def test_a_collector_that_is_away_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture):
    now = 0.0
    dropped = DroppedSpans("collector:4317", clock=lambda: now)
    with caplog.at_level(logging.WARNING):
        for second in range(150):
            now = float(second)
            dropped.add("export_failed", 10)
    assert [record.__dict__["muster_fields"]["dropped"] for record in caplog.records] == [10, 600, 600]


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
    monkeypatch.setattr(span_export, "_MAX_QUEUE", 512)
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
