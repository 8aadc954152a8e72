"""What happens to replicas that the records do not account for: kept, removed, or continued by their record."""

from __future__ import annotations

import logging
from unittest.mock import create_autospec

import msgspec
import pytest

from muster_core.events import JobAdopted
from muster_core.lifecycle import HeldJob, OrphanMark
from muster_core.models import JobRecord, Phase, ReplicaRecord, ReplicaState
from muster_events.history import Absence
from muster_pod_launcher.adoption import AdoptionReview
from muster_runtimes import Observation, ReplicaId, Runtime
from muster_service.metrics import Metrics
from muster_testing.pool import ScenarioPool

SECOND = 1_000_000
GRACE = 60 * SECOND
JOB = "j-orphan"


class Scene:
    """One job that the runtime holds, and the store."""

    def __init__(self) -> None:
        self.now = 1000 * SECOND
        self.records: dict[str, JobRecord] = {}
        self.held = HeldJob(job_id=JOB)
        self.absence_now: Absence | None = Absence.UNKNOWN
        self.read_next: dict[str, JobRecord] = {}
        self.adopted: list[JobAdopted] = []
        self.runtime = create_autospec(Runtime, instance=True)
        self.runtime.orphan_mark.side_effect = lambda _: self.held.mark  # pyright: ignore[reportUnknownLambdaType]
        self.runtime.mark_orphan.side_effect = self._mark
        self.runtime.held_job.side_effect = self._hold
        self.runtime.job_observations.side_effect = self._observations
        self.metrics = Metrics(process=False)
        self.review = AdoptionReview(
            records=self.records,
            runtime=self.runtime,
            store=self,
            clock=lambda: self.now,
            grace_us=GRACE,
            metrics=self.metrics,
            pool="local",
        ).review

    def runs(self, *runs: ReplicaRecord) -> None:
        """Let the runtime hold these runs."""
        self.held = msgspec.structs.replace(self.held, runs=runs)

    async def read_to_end(self, job_id: str) -> None:
        """See ``JobStore``."""
        self.records |= self.read_next

    async def absence(self, job_id: str) -> Absence | None:
        """See ``JobStore``."""
        return self.absence_now

    async def adopt(self, job_id: str, event: JobAdopted, *, trace: str) -> None:
        """See ``JobStore``."""
        self.adopted.append(event)

    def orphans(self) -> str:
        """The exposed number of orphans."""
        lines = self.metrics.exposition().decode().splitlines()
        [line] = [line for line in lines if line.startswith("muster_orphans{")]
        return line.split()[1]

    async def _mark(self, _: str, mark: OrphanMark | None) -> None:
        self.held = msgspec.structs.replace(self.held, mark=mark)

    async def _hold(self, _: str) -> HeldJob:
        return self.held

    def _observations(self, _: str) -> list[Observation]:
        return [
            Observation(
                replica=ReplicaId(
                    job_id=JOB, attempt=run.attempt, role=run.role, index=run.index, restart=run.restart
                ),
                state=run.state,
                at=0,
            )
            for run in self.held.runs
        ]


def run(attempt: int = 1) -> ReplicaRecord:
    return ReplicaRecord(
        role="worker", index=0, attempt=attempt, generation=1, node="n1", state=ReplicaState.RUNNING
    )


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.runs(run())
    return scene


def record_of(scene: Scene) -> JobRecord:
    """Return the record of the job at its first attempt."""
    pool = ScenarioPool()
    pool.add_node("n1")
    return msgspec.structs.replace(pool.record(pool.run(pool.rigid("gang", 1))), job_id=JOB)


async def test_an_unknown_job_is_kept_for_its_grace_and_logged_once(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert await scene.review(JOB) == scene.now + GRACE
        assert await scene.review(JOB) == scene.now + GRACE

    assert [one.message for one in caplog.records if "orphan found" in one.message] != []
    assert len(caplog.records) == 1
    assert scene.orphans() == "1.0"


async def test_the_grace_counts_from_the_first_time_although_the_service_restarts(scene: Scene) -> None:
    await scene.review(JOB)
    until = scene.now + GRACE
    scene.now += GRACE // 2

    assert await scene.review(JOB) == until


async def test_an_orphan_is_removed_when_its_grace_is_over(scene: Scene) -> None:
    await scene.review(JOB)
    scene.now += GRACE

    assert await scene.review(JOB) is None


async def test_an_orphan_is_removed_on_request(scene: Scene) -> None:
    scene.held = msgspec.structs.replace(
        scene.held, mark=OrphanMark(found_at=scene.now, removal_requested=True)
    )

    assert await scene.review(JOB) is None


async def test_a_deleted_job_is_removed_at_once(scene: Scene) -> None:
    scene.absence_now = Absence.DELETED

    assert await scene.review(JOB) is None
    assert scene.held.mark is None


async def test_a_job_whose_record_was_not_read_yet_is_no_orphan(scene: Scene) -> None:
    scene.absence_now = None

    assert await scene.review(JOB) is not None
    assert scene.held.mark is None


async def test_replicas_of_an_unreadable_record_are_left_alone(scene: Scene) -> None:
    scene.absence_now = Absence.UNREADABLE

    assert await scene.review(JOB) is not None
    assert scene.held.mark is None


async def test_a_job_without_a_replica_is_no_orphan(scene: Scene) -> None:
    scene.runs()

    assert await scene.review(JOB) is None
    assert scene.held.mark is None


async def test_an_adopted_orphan_is_no_orphan_any_more(scene: Scene) -> None:
    await scene.review(JOB)
    scene.records[JOB] = record_of(scene)

    assert await scene.review(JOB) is None
    assert scene.held.mark is None
    assert scene.orphans() == "0.0"


async def test_a_record_behind_its_replicas_is_adopted_before_anything_else_happens(scene: Scene) -> None:
    scene.records[JOB] = record_of(scene)
    scene.runs(run(attempt=2))

    assert await scene.review(JOB) is None
    assert [event.attempt for event in scene.adopted] == [2]
    assert scene.adopted[0].job is None

    await scene.review(JOB)
    assert len(scene.adopted) == 1


async def test_a_record_that_is_only_read_late_is_not_behind(scene: Scene) -> None:
    record = record_of(scene)
    scene.records[JOB] = record
    scene.runs(run(attempt=2))
    scene.read_next = {JOB: msgspec.structs.replace(record, attempt=2)}

    assert await scene.review(JOB) is None
    assert scene.adopted == []


async def test_replicas_wait_for_a_validation_that_is_repeated(scene: Scene) -> None:
    scene.records[JOB] = JobRecord(job_id=JOB, applied_sequence=1, phase=Phase.SUBMITTED)

    assert await scene.review(JOB) == scene.now + SECOND
    assert scene.adopted == []


async def test_a_record_that_accounts_for_its_replicas_is_reconciled(scene: Scene) -> None:
    scene.records[JOB] = record_of(scene)

    assert await scene.review(JOB) is None
    assert scene.adopted == []


@pytest.mark.parametrize("first", [(), (run(attempt=1),)], ids=["none", "earlier"])
async def test_events_are_read_before_runs_are_judged_that_another_instance_started(
    scene: Scene, first: tuple[ReplicaRecord, ...]
) -> None:
    record = record_of(scene)
    scene.records[JOB] = record
    scene.runs(*first)
    assert await scene.review(JOB) is None

    # This instance was paused: it does not know why there is another attempt.
    scene.runs(*first, run(attempt=2))
    scene.read_next = {JOB: msgspec.structs.replace(record, attempt=2)}
    assert await scene.review(JOB) is None

    assert scene.records[JOB].attempt == 2
    assert scene.adopted == []


async def test_a_job_is_compared_once(scene: Scene) -> None:
    scene.records[JOB] = record_of(scene)
    for _ in range(3):
        assert await scene.review(JOB) is None

    assert scene.runtime.held_job.await_count == 1
