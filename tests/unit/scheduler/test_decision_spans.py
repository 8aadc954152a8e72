"""The spans of decisions: producers of the events that they publish, linked to the command that caused them."""

from __future__ import annotations

import msgspec
import pytest

from muster_core.events import MANUAL_POLICY, Assignment, JobPlaced, JobResized
from muster_core.models import JobRecord, Reason
from muster_core.scheduling import Evict, Place, Resize
from muster_events import spans
from muster_scheduler.adapters import DecisionSpanRecorder
from muster_service.trace_context import span_ref, trace_ref
from muster_testing.spans import SpanLog

JOB = "j-aaaaaaaaaaaaaaaa"
ROOT, COMMAND = trace_ref("job"), trace_ref("ScaleJob")
US = 1_000_000
RECORD = JobRecord(
    job_id=JOB,
    applied_sequence=7,
    name="demo",
    trace=ROOT.traceparent,
    command_trace=COMMAND.traceparent,
    waiting_since=10 * US,
)
WHY = Reason(code="Manual", message="worker to 3")
PLACED = Place(
    job_id=JOB,
    attempt=1,
    generation=1,
    replicas=(Assignment(role="worker", index=0, node="n1"),),
    reason=Reason(code="Placed"),
)
NS = 1_000_000_000


@pytest.fixture
def log() -> SpanLog:
    return SpanLog()


@pytest.fixture
def recorder(log: SpanLog) -> DecisionSpanRecorder:
    return DecisionSpanRecorder(log.telemetry(), lambda record: "default")


def test_a_placement_is_a_producer_of_its_event(log: SpanLog, recorder: DecisionSpanRecorder) -> None:
    recorder.observe_decision(RECORD, PLACED, 12 * NS)

    queued, place = log.spans
    assert (queued.name, queued.role, queued.start_ns, queued.end_ns) == (
        "queued",
        "internal",
        10 * NS,
        12 * NS,
    )
    assert place.role == "producer"
    assert place.span_id == span_ref(ROOT, spans.place(JOB, 1)).span_id
    expected = {
        "messaging.system": "nats",
        "messaging.destination.name": "muster.v1.job.{shard}.{job_id}.JobPlaced",
        "messaging.operation.type": "send",
        "messaging.operation.name": "publish",
        "messaging.message.id": f"{JOB}/1/placed/7",
        "muster.job_id": JOB,
    }
    assert {name: place.attributes[name] for name in expected} == expected


@pytest.mark.parametrize(("policy", "linked"), [(MANUAL_POLICY, True), ("dragon", False)])
def test_only_a_resize_by_command_links_to_the_command(
    log: SpanLog, recorder: DecisionSpanRecorder, policy: str, linked: bool
) -> None:
    recorder.observe_decision(
        RECORD, Resize(job_id=JOB, attempt=1, generation=2, reason=WHY, policy=policy), 12 * NS
    )

    (resize,) = log.spans
    assert [link.ref for link in resize.links] == [COMMAND] * linked
    proposed = span_ref(ROOT, spans.propose(JOB, 1, 1, WHY.message))
    assert resize.parent_id == (ROOT if linked else proposed).span_id


@pytest.mark.parametrize(("avoid", "is_failure"), [((), False), (("n1",), True)])
def test_an_eviction_is_a_failure_only_if_nodes_failed_the_gang(
    log: SpanLog, recorder: DecisionSpanRecorder, avoid: tuple[str, ...], is_failure: bool
) -> None:
    reason = Reason(code="NodeLost", message="n1 is gone")
    recorder.observe_decision(RECORD, Evict(job_id=JOB, attempt=1, reason=reason, avoid=avoid), 12 * NS)

    (evict,) = log.spans
    assert (evict.name, evict.role, evict.error) == (
        "evict",
        "producer",
        "n1 is gone" if is_failure else None,
    )
    (event,) = evict.events
    assert event.name == "evicted"
    assert event.attributes.get("exception.type") == ("NodeLost" if is_failure else None)


def test_a_new_leader_records_the_decisions_of_the_previous_one(
    log: SpanLog, recorder: DecisionSpanRecorder
) -> None:
    placed = PLACED.to_event("local")
    resized = JobResized(attempt=1, generation=2, reason=WHY, policy=MANUAL_POLICY)
    moved_on = msgspec.structs.replace(RECORD, waiting_since=20 * US)

    for record, event in ((RECORD, placed), (RECORD, resized), (moved_on, placed)):
        assert isinstance(event, JobPlaced | JobResized)
        recorder.observe_earlier(record, event, 12 * NS)

    assert [span.name for span in log.spans] == ["queued", "place", "resize", "place"]
