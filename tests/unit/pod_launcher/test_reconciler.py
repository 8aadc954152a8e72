"""The reconciler starts, reports and stops the replicas of a job, level-triggered, once each."""

from __future__ import annotations

import asyncio
from unittest.mock import create_autospec

import msgspec
import pytest

from muster_core.events import JobFinished, Outcome, ReplicaChange, ReplicasChanged
from muster_core.frameworks import RuntimeContext
from muster_core.models import JobRecord, Reason, ReplicaState
from muster_events import spans
from muster_pod_launcher.observers import ReplicaSpanRecorder
from muster_pod_launcher.ports import ReplicaChangeObserver
from muster_pod_launcher.reconciler import JobReconciler
from muster_runtimes import Launch, Observation, ReplicaId, Runtime
from muster_service.trace_context import SpanRef, span_ref, trace_ref
from muster_testing.pool import ScenarioPool
from muster_testing.spans import SpanLog


class Machine:
    """A runtime with one job whose replicas run from their start until they are stopped."""

    def __init__(self, pool: ScenarioPool) -> None:
        self.seen: dict[ReplicaId, Observation] = {}
        self.runtime = create_autospec(Runtime, instance=True)
        self.runtime.job_observations.side_effect = lambda _: list(self.seen.values())  # pyright: ignore[reportUnknownLambdaType]
        self.runtime.addresses.return_value = {}
        self.runtime.context.return_value = RuntimeContext(addresses={}, members_path="m", config_folder="c")
        self.runtime.start.side_effect = self._start
        self.runtime.stop.side_effect = self._stop
        self._pool = pool
        self.published: list[tuple[str, ReplicasChanged]] = []
        self.answered = asyncio.Event()
        self.answered.set()

    async def _start(self, launch: Launch) -> Observation:
        return self.observe(launch.replica, ReplicaState.RUNNING)

    async def _stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        self.observe(replica, ReplicaState.EXITED, exit_code=143)

    def observe(self, replica: ReplicaId, state: ReplicaState, exit_code: int | None = None) -> Observation:
        now = self._pool.now
        seen = Observation(replica=replica, state=state, at=now, started_at=now, exit_code=exit_code)
        return (
            self.seen.setdefault(replica, seen)
            if exit_code is None
            else self.seen.update({replica: seen}) or seen
        )

    async def publish(self, record: JobRecord, event: ReplicasChanged) -> bool:
        """Publish the event, once however many reconcilers report it."""
        if (record.job_id, event) in self.published:
            return False
        self.published.append((record.job_id, event))
        await self.answered.wait()
        self._pool.publish(record.job_id, event)
        return True


def reconciler_of(
    machine: Machine,
    pool: ScenarioPool,
    records: dict[str, JobRecord],
    observer: ReplicaChangeObserver | None = None,
) -> JobReconciler:
    ignoring = create_autospec(ReplicaChangeObserver, instance=True)
    ignoring.traceparent.return_value = ""
    return JobReconciler(
        records=records,
        runtime=machine.runtime,
        events=machine,
        observer=observer or ignoring,
        clock=lambda: pool.now,
        forget=lambda job_id: records.pop(job_id, None) and None,
    )


@pytest.mark.parametrize("has_started", [True, False])
async def test_an_unobserved_replica_is_lost_only_if_the_runtime_does_not_find_it(has_started: bool) -> None:
    pool = ScenarioPool()
    pool.add_node("n1")
    job_id = pool.run(pool.rigid("gang", 1))
    machine = Machine(pool)
    record = pool.record(job_id)
    [replica] = record.gang()
    started = ReplicaId(job_id=job_id, attempt=replica.attempt, role=replica.role, index=replica.index)

    async def refresh(_: str) -> None:
        if has_started:
            # Another instance started it, and this one has not observed that yet.
            machine.observe(started, ReplicaState.EXITED, exit_code=0)

    machine.runtime.refresh_job.side_effect = refresh
    await reconciler_of(machine, pool, {job_id: record}).process(job_id)
    [replica] = pool.record(job_id).replicas
    assert (replica.attempt, replica.exit_code) == ((1, 0) if has_started else (1, None))


async def test_nothing_is_reported_lost_while_the_runtime_cannot_be_read() -> None:
    pool = ScenarioPool()
    pool.add_node("n1")
    job_id = pool.run(pool.rigid("gang", 1))
    machine = Machine(pool)
    machine.runtime.refresh_job.side_effect = OSError("unavailable")
    with pytest.raises(OSError, match="unavailable"):
        await reconciler_of(machine, pool, {job_id: pool.record(job_id)}).process(job_id)
    [replica] = pool.record(job_id).replicas
    assert replica.state is ReplicaState.RUNNING


async def test_a_gang_is_started_reported_and_stopped_once() -> None:
    pool = ScenarioPool()
    pool.add_node("n1")
    machine = Machine(pool)
    records: dict[str, JobRecord] = {}
    reconciler = reconciler_of(machine, pool, records)
    job_id = pool.submit(pool.rigid("gang", 2))
    pool.decide()
    cancelled = JobFinished(outcome=Outcome.CANCELLED, reason=Reason(code="Cancelled", message=""))
    for event in (None, cancelled):
        if event is not None:
            pool.publish(job_id, event)
        records[job_id] = pool.record(job_id)
        await reconciler.process(job_id)
    assert machine.runtime.start.await_count == machine.runtime.stop.await_count == 2
    # The job is settled: its end, and that of each replica, is reported.
    assert not pool.records()


async def test_the_reason_of_a_replica_is_one_printable_line_of_bounded_length() -> None:
    pool = ScenarioPool()
    pool.add_node("n1")
    job_id = pool.run(pool.rigid("gang", 1))
    machine = Machine(pool)
    record = pool.record(job_id)
    [replica] = record.gang()
    started = ReplicaId(job_id=job_id, attempt=replica.attempt, role=replica.role, index=replica.index)
    seen = machine.observe(started, ReplicaState.EXITED, exit_code=1)
    machine.seen[started] = msgspec.structs.replace(
        seen, reason="\x1b[2J\x00first\nsecond" + "x" * 60_000_000
    )

    await reconciler_of(machine, pool, {job_id: record}).process(job_id)

    [replica] = pool.record(job_id).replicas
    assert replica.reason.startswith(r"\x1b[2J\x00first\nsecondxxx")
    assert len(replica.reason) == 1024


ROOT = trace_ref("job")


def traced(record: JobRecord) -> JobRecord:
    return msgspec.structs.replace(record, trace=ROOT.traceparent)


async def test_two_owners_of_a_partition_record_each_span_once() -> None:
    pool = ScenarioPool()
    pool.add_node("n1")
    machine, log = Machine(pool), SpanLog()
    job_id = pool.submit(pool.rigid("gang", 2))
    pool.decide()
    placed = traced(pool.record(job_id))
    owners = [
        reconciler_of(machine, pool, {job_id: placed}, ReplicaSpanRecorder(log.telemetry(name)))
        for name in ("first", "second")
    ]
    for owner in owners:
        # Both see the replicas run, and neither has read what the other reports.
        await owner.process(job_id)
    for replica in list(machine.seen):
        machine.observe(replica, ReplicaState.EXITED, exit_code=1)
    running = {job_id: traced(pool.record(job_id))}
    for name in ("second", "third"):
        await reconciler_of(machine, pool, running, ReplicaSpanRecorder(log.telemetry(name))).process(job_id)

    names = [f"{what} worker-{index}" for what in ("launch", "running") for index in (0, 1)]
    assert sorted(span.name for span in log.spans) == names
    assert {span.by for span in log.spans if span.name.startswith("launch")} == {"first"}


async def test_a_report_in_flight_while_the_partition_is_lost_is_recorded_by_the_instance_that_sent_it() -> (
    None
):
    pool = ScenarioPool()
    pool.add_node("n1")
    machine, log = Machine(pool), SpanLog()
    job_id = pool.submit(pool.rigid("gang", 1))
    pool.decide()
    machine.answered.clear()
    records = {job_id: traced(pool.record(job_id))}
    first = asyncio.create_task(
        reconciler_of(machine, pool, records, ReplicaSpanRecorder(log.telemetry("first"))).process(job_id)
    )
    while not machine.published:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    machine.answered.set()
    with pytest.raises(asyncio.CancelledError):
        await first
    records = {job_id: traced(pool.record(job_id))}
    await reconciler_of(machine, pool, records, ReplicaSpanRecorder(log.telemetry("second"))).process(job_id)

    assert [(span.name, span.by) for span in log.spans] == [("launch worker-0", "first")]


def test_every_parent_of_a_replicas_span_is_sent_before_it() -> None:
    pool = ScenarioPool()
    pool.add_node("n1")
    job_id = pool.run(pool.rigid("gang", 1))
    record = traced(pool.record(job_id))
    [replica] = record.replicas
    log = SpanLog()
    recorder = ReplicaSpanRecorder(log.telemetry())

    def change(state: ReplicaState, **rest: object) -> ReplicasChanged:
        base = ReplicaChange(role="worker", index=0, attempt=1, state=state, at=pool.now)
        return ReplicasChanged(changes=(msgspec.structs.replace(base, **rest),))

    began = {(1, "worker", 0, 0): pool.now}
    recorder.observe(record, change(ReplicaState.RUNNING), began)
    lost = change(ReplicaState.LOST, node_lost=True, reason="node n1 disappeared")
    recorder.observe(record, lost, began)

    launch, running = log.spans
    assert launch.parent_id == span_ref(ROOT, spans.place(job_id, 1)).span_id
    assert launch.attributes["messaging.destination.name"] == "muster.v1.job.{shard}.{job_id}.JobPlaced"
    assert launch.role == "consumer"
    assert running.parent_id == launch.span_id
    assert SpanRef.parse(recorder.traceparent(record, replica)).span_id == launch.span_id
    assert running.error == "node n1 disappeared"
    (event,) = running.events
    assert (event.name, event.attributes["exception.type"]) == ("node lost", "NodeLost")


def test_a_replica_that_never_ran_has_a_failed_launch() -> None:
    pool = ScenarioPool()
    pool.add_node("n1")
    job_id = pool.submit(pool.rigid("gang", 1))
    pool.decide()
    log = SpanLog()
    refused = ReplicaChange(
        role="worker", index=0, attempt=1, state=ReplicaState.REJECTED, at=pool.now, reason="no such image"
    )

    ReplicaSpanRecorder(log.telemetry()).observe(
        traced(pool.record(job_id)), ReplicasChanged(changes=(refused,)), {}
    )

    (launch,) = log.spans
    assert (launch.name, launch.error) == ("launch worker-0", "no such image")
    assert [event.name for event in launch.events] == ["rejected"]
