"""The reconciler starts, reports and stops the replicas of a job, level-triggered, once each."""

from __future__ import annotations

from unittest.mock import create_autospec

import msgspec
import pytest

from muster_core.events import JobFinished, Outcome, ReplicasChanged
from muster_core.frameworks import RuntimeContext
from muster_core.models import JobRecord, Reason, ReplicaState
from muster_pod_launcher.ports import ReplicaChangeObserver
from muster_pod_launcher.reconciler import JobReconciler
from muster_runtimes import Launch, Observation, ReplicaId, Runtime
from muster_testing.pool import ScenarioPool


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

    async def _start(self, launch: Launch) -> Observation:
        return self.observe(launch.replica, ReplicaState.RUNNING)

    async def _stop(self, replica: ReplicaId, *, grace_s: float) -> None:
        self.observe(replica, ReplicaState.EXITED, exit_code=143)

    def observe(self, replica: ReplicaId, state: ReplicaState, exit_code: int | None = None) -> Observation:
        seen = Observation(replica=replica, state=state, at=self._pool.now, exit_code=exit_code)
        return (
            self.seen.setdefault(replica, seen)
            if exit_code is None
            else self.seen.update({replica: seen}) or seen
        )

    async def publish(self, record: JobRecord, event: ReplicasChanged) -> None:
        self._pool.publish(record.job_id, event)


def reconciler_of(machine: Machine, pool: ScenarioPool, records: dict[str, JobRecord]) -> JobReconciler:
    observer = create_autospec(ReplicaChangeObserver, instance=True)
    observer.traceparent.return_value = ""
    return JobReconciler(
        records=records,
        runtime=machine.runtime,
        events=machine,
        observer=observer,
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
