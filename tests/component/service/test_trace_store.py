"""How the trace store keeps to its bound, and what it does with damage."""

from pathlib import Path

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from muster_local.traces.store import TraceStore

BOUND = 100_000


def batch(*spans: Span, service: str = "a") -> list[ResourceSpans]:
    name = KeyValue(key="service.name", value=AnyValue(string_value=service))
    return [ResourceSpans(resource=Resource(attributes=[name]), scope_spans=[ScopeSpans(spans=spans)])]


def span(trace: int, number: int = 0, *, size: int = 10_000, start_ns: int = 0) -> Span:
    return Span(
        trace_id=trace_id(trace),
        span_id=(number + 1).to_bytes(8, "big"),
        name="x" * size,
        start_time_unix_nano=start_ns,
    )


def trace_id(trace: int) -> bytes:
    return (trace + 1).to_bytes(16, "big")


def kept(store: TraceStore, trace: int) -> int:
    traces = store.trace(trace_id(trace))
    return (
        sum(len(scope.spans) for one in traces.resource_spans for scope in one.scope_spans) if traces else 0
    )


@pytest.fixture
def store(tmp_path: Path) -> TraceStore:
    return TraceStore(directory=tmp_path, max_bytes=BOUND)


def test_the_oldest_traces_go_first(store: TraceStore):
    for trace in range(20):
        assert store.add(batch(span(trace))) == 0

    assert [kept(store, trace) for trace in (0, 10, 11, 19)] == [0, 0, 1, 1]
    assert store.size_bytes <= BOUND


def test_a_trace_that_still_grows_is_not_old(store: TraceStore):
    store.add(batch(span(0)))
    for trace in range(1, 15):
        store.add(batch(span(trace)))
        store.add(batch(span(0, number=trace, size=10)))

    assert kept(store, 0) == 15


def test_one_trace_cannot_push_out_all_others(store: TraceStore):
    store.add(batch(span(0)))

    refused = store.add(batch(*(span(1, number) for number in range(10))))

    assert refused == 6
    assert (kept(store, 0), kept(store, 1)) == (1, 4)


def test_ids_that_are_none_are_refused(store: TraceStore):
    assert store.add(batch(Span(trace_id=b"short", span_id=b"12345678"), span(0))) == 1


def test_a_replaced_span_is_counted_once(store: TraceStore):
    store.add(batch(span(0, size=10_000)))
    store.add(batch(span(0, size=20_000)))

    assert kept(store, 0) == 1
    assert 20_000 < store.size_bytes < 21_000


def test_spans_are_grouped_by_their_service_and_ordered_by_their_start(store: TraceStore):
    store.add(batch(span(0, 1, start_ns=20), span(0, 2, start_ns=10)))
    store.add(batch(span(0, 3, start_ns=5), service="b"))

    traces = store.trace(trace_id(0))

    assert traces
    starts = {
        one.resource.attributes[0].value.string_value: [
            span.start_time_unix_nano for span in one.scope_spans[0].spans
        ]
        for one in traces.resource_spans
    }
    assert starts == {"a": [10, 20], "b": [5]}


def test_the_bound_holds_across_restarts(store: TraceStore, tmp_path: Path):
    for trace in range(5):
        store.add(batch(span(trace)))
    size = store.size_bytes
    store.close()

    again = TraceStore(directory=tmp_path, max_bytes=30_000)
    assert again.size_bytes == size
    again.add(batch(span(9)))

    assert again.size_bytes <= 30_000
    assert [kept(again, trace) for trace in (0, 4, 9)] == [0, 1, 1]


def test_dropped_spans_give_their_space_back(store: TraceStore, tmp_path: Path):
    for trace in range(200):
        store.add(batch(span(trace)))
    store.close()

    assert (tmp_path / "traces.db").stat().st_size < 3 * BOUND


def test_a_damaged_database_is_set_aside(tmp_path: Path):
    (tmp_path / "traces.db").write_bytes(b"this is no database" * 1000)

    store = TraceStore(directory=tmp_path, max_bytes=BOUND)
    store.add(batch(span(0)))

    assert kept(store, 0) == 1
    assert (tmp_path / "traces.damaged").exists()
