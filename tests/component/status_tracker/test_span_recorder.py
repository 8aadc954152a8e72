"""The spans of a job are recorded once, by the instance that stores the record, wherever a partition changes hands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import pytest_asyncio

from muster_bus import BucketSpec, Bus, KeyValueStore, provision
from muster_core.events import (
    Assignment,
    Command,
    CommandRequested,
    JobEvent,
    JobEvicted,
    JobFinished,
    JobPlaced,
    JobRestarting,
    JobSubmitted,
    JobValidated,
    Outcome,
    ReplicaChange,
    ReplicasChanged,
    StoredEvent,
)
from muster_core.lifecycle import Retention
from muster_core.models import (
    Job,
    JobRecord,
    Reason,
    ReplicaState,
    RestartScope,
    Role,
    RunPolicy,
    Template,
)
from muster_events.subjects import LIVE_RECORDS, partition_of
from muster_service.trace_context import SpanRef, trace_ref
from muster_status_tracker.ended_jobs import EndedJobs
from muster_status_tracker.handlers import PartitionHandler
from muster_status_tracker.observers import JobSpanRecorder
from muster_status_tracker.records import RecordCache, RecordStore
from muster_testing.spans import RecordedSpan, SpanLog

SECOND = 1_000_000
JOB_ID = "j-aaaaaaaaaaaaaaaa"
ROOT = trace_ref("job")
CANCELLER = trace_ref("cancel")
FAILED = Reason(code="ReplicaFailed", message="worker-0 ended with exit code 1")
PREEMPTED = Reason(code="Preempted", message="preempted by urgent")
CANCELLED = Reason(code="Cancelled", message="requested by ann")


def changed(attempt: int, state: ReplicaState, at: int, exit_code: int | None = None) -> ReplicasChanged:
    change = ReplicaChange(
        role="worker", index=0, attempt=attempt, state=state, at=at * SECOND, exit_code=exit_code
    )
    return ReplicasChanged(changes=(change,))


def placed(attempt: int) -> JobPlaced:
    return JobPlaced(
        attempt=attempt,
        generation=1,
        pool="local",
        replicas=(Assignment(role="worker", index=0, node="n1"),),
    )


ROLE = Role(name="worker", replicas=1, min=1, max=1, template=Template())
LIFE: tuple[JobEvent, ...] = (
    JobSubmitted(job_id=JOB_ID, request_id="r"),
    JobValidated(job=Job(name="demo", roles=(ROLE,), run=RunPolicy(backoff_limit=3))),
    placed(1),
    changed(1, ReplicaState.RUNNING, 4),
    changed(1, ReplicaState.EXITED, 5, exit_code=1),
    JobRestarting(scope=RestartScope.GANG, attempt=1, reason=FAILED, delay_ms=500),
    placed(2),
    JobEvicted(attempt=2, reason=PREEMPTED),
    changed(2, ReplicaState.REMOVED, 9),
    placed(3),
    changed(3, ReplicaState.RUNNING, 11),
    CommandRequested(command=Command.CANCEL, request_id="c", by="ann"),
    JobFinished(outcome=Outcome.CANCELLED, reason=CANCELLED, attempt=3),
    changed(3, ReplicaState.EXITED, 14, exit_code=143),
)
SPANS = {"launch": 3, "restart": 1, "command cancel": 1, "run": 1, "clean up": 1}


class Silent:
    """Publishes no decision, and observes nothing."""

    async def publish(self, record: JobRecord, event: JobFinished | JobRestarting) -> None:
        """Drop the decision: the events of the test contain it."""

    def observe(self, before: JobRecord | None, after: JobRecord) -> None:
        """Ignore the transition."""


class Owner:
    """An instance that owns the partition."""

    def __init__(self, name: str, records: KeyValueStore, log: SpanLog) -> None:
        self._records = records
        recorder = JobSpanRecorder(log.telemetry(name))
        self.store = RecordStore(records, on_superseded=recorder.superseded)
        silent = Silent()
        self.handler = PartitionHandler(
            cache=RecordCache(ended=EndedJobs(Retention(ttl_s=0))),
            store=self.store,
            publisher=silent,
            observer=silent,
            recorder=recorder,
            retention=Retention(ttl_s=0),
            clock=lambda: 0,
            count_invalid=lambda: None,
            partition=partition_of(JOB_ID),
        )

    async def load(self) -> None:
        """Start from the stored records."""
        self.handler.load(await self.store.load(await self._records.entries(LIVE_RECORDS)))

    async def handle(self, events: Sequence[StoredEvent], *, live: bool = True) -> None:
        """Handle events one by one."""
        for stored in events:
            await self.handler.handle([stored], live=live)


def stored_life() -> list[StoredEvent]:
    return [
        StoredEvent(
            job_id=JOB_ID,
            event=event,
            sequence=number,
            at=number * SECOND,
            traceparent=(CANCELLER if isinstance(event, CommandRequested) else ROOT).traceparent,
        )
        for number, event in enumerate(LIFE, 1)
    ]


@pytest_asyncio.fixture
async def records(shared_bus: Bus, fresh: str) -> KeyValueStore:
    await provision(shared_bus, buckets=[BucketSpec(name=fresh, ttl=True)])
    return KeyValueStore(shared_bus, fresh)


def assert_each_once(spans: Sequence[RecordedSpan]) -> None:
    assert Counter(span.name for span in spans) == SPANS
    assert len({span.span_id for span in spans}) == len(spans)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not-stored"])
@pytest.mark.parametrize("cut", range(1, len(LIFE)))
async def test_a_partition_that_changes_hands_records_each_span_once(
    records: KeyValueStore, cut: int, stored: bool
) -> None:
    log = SpanLog()
    life = stored_life()
    first, second = Owner("first", records, log), Owner("second", records, log)
    await first.handle(life[:cut])
    if stored:
        await first.handler.flush()
    await second.load()
    # It reads again what is not acknowledged, then what is new.
    await second.handle(life[:cut], live=False)
    await second.handle(life[cut:])
    await second.handler.flush()

    assert_each_once(log.spans)


@pytest.mark.parametrize("cut", range(1, len(LIFE)))
async def test_an_instance_that_was_paused_records_nothing_that_the_new_owner_has_recorded(
    records: KeyValueStore, cut: int
) -> None:
    log = SpanLog()
    life = stored_life()
    paused, owner = Owner("paused", records, log), Owner("owner", records, log)
    await paused.handle(life[:cut])
    await owner.load()
    await owner.handle(life, live=False)
    await owner.handler.flush()
    await paused.handle(life[cut : cut + 2])
    await paused.handler.flush()

    assert_each_once(log.spans)


async def test_the_spans_of_a_job_say_what_happened(records: KeyValueStore) -> None:
    log = SpanLog()
    owner = Owner("owner", records, log)
    await owner.handle(stored_life())
    await owner.handler.flush()

    assert {span.parent_id for span in log.spans} == {ROOT.span_id}
    first, evicted, last = [span for span in log.spans if span.name == "launch"]
    assert (first.error, last.error) == (None, None)
    assert evicted.error == "Evicted: preempted by urgent"
    restart, run, cancel = (log.named(name) for name in ("restart", "run", "command cancel"))
    assert [event.name for event in run.events] == ["restart", "evicted"]
    assert restart.events[0].attributes == {
        "exception.type": FAILED.code,
        "exception.message": FAILED.message,
    }
    assert (run.start_ns, run.end_ns) == (4_000_000_000, 13_000_000_000)
    for span in (run, cancel):
        (link,) = span.links
        assert link.ref == SpanRef(CANCELLER.trace_id, CANCELLER.span_id)
    assert cancel.role == "consumer"
    expected = {
        "messaging.system": "nats",
        "messaging.destination.name": "muster.v1.job.{shard}.{job_id}.CommandRequested",
        "messaging.operation.type": "process",
        "messaging.message.id": f"{JOB_ID}/command/cancel/c",
        "muster.by": "ann",
    }
    assert {name: cancel.attributes[name] for name in expected} == expected


async def test_the_command_that_deletes_a_job_is_recorded(records: KeyValueStore) -> None:
    log = SpanLog()
    owner = Owner("owner", records, log)
    delete = StoredEvent(
        job_id=JOB_ID,
        event=CommandRequested(command=Command.DELETE, request_id="d"),
        sequence=len(LIFE) + 1,
        at=20 * SECOND,
        traceparent=CANCELLER.traceparent,
    )
    await owner.handle(stored_life())
    await owner.handler.flush()
    await owner.handle([delete])

    assert await records.entries(LIVE_RECORDS) == []
    assert log.named("command delete").links[0].ref.trace_id == CANCELLER.trace_id
