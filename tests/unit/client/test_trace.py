"""A trace from a store becomes a picture, whatever is missing from it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from muster._trace.spans import read_spans
from muster._trace.tree import build_trees, draw, length, notes, summary

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND

Attributes = dict[str, str | int | bool]


def raw_attributes(attributes: Attributes) -> list[dict[str, object]]:
    kinds = {str: "stringValue", int: "intValue", bool: "boolValue"}
    return [
        {"key": key, "value": {kinds[type(value)]: str(value) if type(value) is int else value}}
        for key, value in attributes.items()
    ]


def raw_span(
    number: int,
    name: str,
    start_s: float,
    end_s: float,
    *,
    parent: int = 0,
    error: str = "",
    attributes: Attributes | None = None,
    events: list[tuple[str, float, Attributes]] | None = None,
    links: list[tuple[str, Attributes]] | None = None,
) -> dict[str, object]:
    span: dict[str, object] = {
        "traceId": TRACE_ID,
        "spanId": f"{number:016x}",
        "name": name,
        "startTimeUnixNano": str(START + round(start_s * SECOND)),
        "endTimeUnixNano": str(START + round(end_s * SECOND)),
        "attributes": raw_attributes(attributes or {}),
        "events": [
            {
                "name": event,
                "timeUnixNano": str(START + round(at_s * SECOND)),
                "attributes": raw_attributes(told),
            }
            for event, at_s, told in events or []
        ],
        "links": [
            {"traceId": trace_id, "spanId": f"{99:016x}", "attributes": raw_attributes(told)}
            for trace_id, told in links or []
        ],
    }
    if parent:
        span["parentSpanId"] = f"{parent:016x}"
    if error:
        span["status"] = {"code": 2, "message": error}
    return span


def document(**services: list[dict[str, object]]) -> str:
    resource_spans = [
        {
            "resource": {
                "attributes": [{"key": "service.name", "value": {"stringValue": name.replace("_", "-")}}]
            },
            "scopeSpans": [{"spans": spans}],
        }
        for name, spans in services.items()
    ]
    return json.dumps({"result": {"resourceSpans": resource_spans}})


def life_of_a_job() -> str:
    return document(
        gateway=[raw_span(1, "SubmitJob", 0, 0.012)],
        spec_validator=[raw_span(2, "validate", 0.004, 0.009, parent=1)],
        scheduler=[
            raw_span(
                3, "queued", 0.009, 2.5, parent=1, attributes={"muster.reason": "InsufficientResources"}
            ),
            raw_span(4, "place", 2.49, 2.5, parent=1, attributes={"muster.attempt": 1, "muster.replicas": 2}),
        ],
        pod_launcher=[
            raw_span(5, "launch", 2.5, 2.61, parent=1, attributes={"muster.attempt": 1}),
            raw_span(6, "launch worker-0", 2.5, 2.55, parent=5, attributes={"muster.node": "n1"}),
            raw_span(7, "launch worker-1", 2.5, 2.61, parent=5, attributes={"muster.node": "n2"}),
            raw_span(8, "running worker-0", 2.55, 9.9, parent=1, attributes={"muster.node": "n1"}),
            raw_span(
                9, "running worker-1", 2.61, 7, parent=1, error="signal 9", attributes={"muster.node": "n2"}
            ),
        ],
        status_tracker=[raw_span(10, "clean up", 9.9, 10, parent=1)],
    )


def test_the_picture_of_a_job_is_as_it_was_agreed():
    trees = build_trees(read_spans(life_of_a_job()))
    picture = [summary(trees, TRACE_ID), *(line.plain for line in draw(trees, width=110))]
    expected = Path(__file__).with_name("trace.golden.txt").read_text().splitlines()
    assert picture == expected


def test_events_and_links_are_listed_below_the_picture():
    command = "4bf92f3577b34da6a3ce929d0e0e4736"
    failed: Attributes = {
        "exception.type": "ReplicaFailed",
        "exception.message": "worker-0 ended with exit code 1",
    }
    evicted: Attributes = {
        "muster.code": "Preempted",
        "muster.reason": "preempted by job urgent of queue production, which waits for 12 GPUs",
        "muster.nodes": "n1,n2",
    }
    spans = [
        raw_span(1, "SubmitJob", 0, 0.1),
        raw_span(2, "run", 1, 9, parent=1, events=[("evicted", 4.5, evicted), ("restart", 3, failed)]),
        raw_span(3, "restart", 3, 4, parent=1, events=[("restart", 3, failed)]),
        raw_span(4, "resize", 5, 5.1, parent=1, links=[(command, {"muster.link": "command"})]),
        raw_span(
            5, "ScaleJob", 5, 5.1, parent=1, links=[(TRACE_ID, {"muster.link": "job", "muster.job": "demo"})]
        ),
        raw_span(6, "other", 5, 5.1, parent=1, links=[(command, {})]),
    ]
    found = list(notes(build_trees(read_spans(document(scheduler=spans))), width=80))
    assert found == [
        "",
        "EVENTS",
        "     +3s  run: restart: ReplicaFailed worker-0 ended with exit code 1",
        "   +4.5s  run: evicted: Preempted preempted by job urgent of queue production,",
        "          which waits for 12 GPUs (nodes=n1,n2)",
        "",
        "LINKS",
        "  ScaleJob -> job demo",
        f"  other -> span {99:016x}: muster trace {command}",
        f"  resize -> command: muster trace {command}",
    ]


def test_a_trace_without_events_and_links_has_no_notes():
    assert not list(notes(build_trees(read_spans(life_of_a_job())), width=80))


def test_no_line_is_wider_than_the_terminal():
    trees = build_trees(read_spans(life_of_a_job()))
    assert all(line.cell_len <= 60 for line in draw(trees, width=60))


def test_a_span_that_came_twice_is_drawn_once():
    span = raw_span(1, "SubmitJob", 0, 1)
    assert len(read_spans(document(gateway=[span, span]) + "\n" + document(gateway=[span]))) == 1


def test_a_span_without_its_parent_is_shown_with_a_note():
    spans = read_spans(
        document(gateway=[raw_span(1, "SubmitJob", 0, 1), raw_span(2, "lost", 0.5, 1, parent=77)])
    )
    trees = build_trees(spans)
    assert "1 marked ? whose parent has not arrived or is lost" in summary(trees, TRACE_ID)
    assert any(line.plain.startswith("? lost") for line in draw(trees, width=100))


def test_several_roots_and_no_root_are_reported():
    two = build_trees(read_spans(document(gateway=[raw_span(1, "a", 0, 1), raw_span(2, "b", 0, 1)])))
    none = build_trees(read_spans(document(gateway=[raw_span(1, "a", 0, 1, parent=9)])))
    assert "2 roots" in summary(two, TRACE_ID)
    assert "no root" in summary(none, TRACE_ID)


def test_spans_that_are_each_others_parents_are_still_drawn():
    trees = build_trees(
        read_spans(document(gateway=[raw_span(1, "a", 0, 1, parent=2), raw_span(2, "b", 0, 1, parent=1)]))
    )
    assert [row.span.name for row in trees.rows] == ["a", "b"]


def test_ids_in_base64_are_the_same_ids():
    span = raw_span(5, "a", 0, 1, parent=6)
    for key in ("traceId", "spanId", "parentSpanId"):
        span[key] = base64.b64encode(bytes.fromhex(str(span[key]))).decode()
    (read,) = read_spans(document(gateway=[span]))
    assert (read.trace_id, read.span_id, read.parent_id) == (TRACE_ID, f"{5:016x}", f"{6:016x}")


@pytest.mark.parametrize("answer", ["<html>", "[]", '{"result": 3}', '{"resourceSpans": 3}'])
def test_what_is_no_trace_is_refused(answer: str):
    with pytest.raises(ValueError, match=r"."):
        read_spans(answer)


@pytest.mark.parametrize(
    ("nanoseconds", "words"),
    [
        (0, "0s"),
        (850_000, "850µs"),
        (12_340_000, "12.3ms"),
        (999_600_000, "1s"),
        (4_210_000_000, "4.21s"),
        (192 * SECOND, "3m12s"),
        (7500 * SECOND, "2h05m"),
    ],
)
def test_lengths_have_three_digits(nanoseconds: int, words: str):
    assert length(nanoseconds) == words


def two_jobs_of_a_document() -> str:
    first: Attributes = {"muster.job": "image", "muster.job_id": "j-1"}
    second: Attributes = {"muster.job": "train", "muster.job_id": "j-2"}
    return document(
        gateway=[raw_span(1, "SubmitJob", 0, 0.012)],
        spec_validator=[
            raw_span(2, "validate", 0.004, 0.009, parent=1, attributes=first),
            raw_span(3, "validate", 0.005, 0.009, parent=1, attributes=second),
        ],
        scheduler=[
            raw_span(4, "queued", 0.009, 0.02, parent=1, attributes=first),
            raw_span(5, "queued", 0.009, 4, parent=1, attributes=second),
        ],
        pod_launcher=[
            raw_span(6, "running builder-0", 0.1, 3.9, parent=7, attributes=first),
            raw_span(8, "running worker-0", 4.1, 6, parent=99, attributes=second),
        ],
        status_tracker=[raw_span(7, "run", 0.1, 3.9, parent=1, attributes=first)],
    )


def test_jobs_that_share_a_trace_are_shown_one_after_the_other():
    trees = build_trees(read_spans(two_jobs_of_a_document()))
    picture = [summary(trees, TRACE_ID), *(line.plain for line in draw(trees, width=110))]
    expected = Path(__file__).with_name("trace_of_two_jobs.golden.txt").read_text().splitlines()
    assert picture == expected


def test_a_job_without_a_name_is_headed_by_its_id():
    refused = raw_span(2, "validate", 0, 1, parent=9, attributes={"muster.job_id": "j-1", "muster.job": ""})
    other = raw_span(3, "validate", 0, 1, parent=9, attributes={"muster.job_id": "j-2", "muster.job": "b"})
    trees = build_trees(read_spans(document(spec_validator=[refused, other])))
    assert [f"{row.guides}{row.span.name}" for row in trees.rows] == [
        "job j-1",
        "└─ validate",
        "job b",
        "└─ validate",
    ]
    assert trees.orphans == 2
