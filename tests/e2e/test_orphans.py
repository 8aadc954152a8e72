"""An older store is restored while replicas of later jobs run: they are kept, listed, and adopted or removed by a user."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from documents import job
from harness import ROOT, start, submit, wait_for_phase

from muster import AsyncClient, NotFound, Rejected
from muster_local import LocalOptions, LocalSystem
from muster_rpc.v1 import job_pb2, orphan_service_pb2 as pb
from muster_runtimes.process.state_files import StateDirectory

RUNNING, SUCCEEDED, QUEUED = job_pb2.PHASE_RUNNING, job_pb2.PHASE_SUCCEEDED, job_pb2.PHASE_QUEUED


class RestoredSystem:
    """A system whose store is exchanged while it is stopped; its replicas continue to run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = LocalOptions(nodes=("n1:cpu=2",), workdir=ROOT)

    @property
    def store(self) -> Path:
        """The store of the broker."""
        return LocalSystem(self.folder / "data", self.options).directory.broker / "store"

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[AsyncClient]:
        """Run the system."""
        system = LocalSystem(self.folder / "data", self.options)
        async with system, AsyncClient(system.address) as muster:
            try:
                yield muster
            except BaseException:
                print(system.log_text()[-20_000:])
                raise

    @property
    def replicas(self) -> StateDirectory:
        """The directory of the replicas."""
        return StateDirectory(LocalSystem(self.folder / "data", self.options).directory.replicas)

    def back_up(self) -> None:
        """Copy the store."""
        shutil.copytree(self.store, self.folder / "backup")

    def restore(self) -> None:
        """Replace the store by its copy."""
        shutil.rmtree(self.store)
        shutil.copytree(self.folder / "backup", self.store)

    def counted(self, name: str, gate: str, *, cpu: int = 1) -> str:
        """Return a job whose replica adds a line to the file ``name`` at its start, and ends with 0 once the file ``gate`` exists."""
        wait = f"echo start >> {self.folder / name}; while [ ! -e {self.folder / gate} ]; do sleep 0.1; done"
        return job(name, "sh", "-c", wait, cpu=cpu)

    def starts(self, name: str) -> int:
        """Return how many replicas of a job have started."""
        return len((self.folder / name).read_text().split())


async def orphans(muster: AsyncClient, count: int) -> dict[str, pb.Orphan]:
    """Return so many orphans by name, once they are found."""
    async with asyncio.timeout(20):
        while len(found := [orphan async for orphan in muster.orphans()]) != count:
            await asyncio.sleep(0.1)
    return {orphan.name: orphan for orphan in found}


@pytest.fixture
async def restored(tmp_path: Path) -> AsyncGenerator[RestoredSystem]:
    """Yield a system, and end all its replicas afterwards."""
    system = RestoredSystem(tmp_path)
    try:
        yield system
    finally:
        await LocalSystem(tmp_path / "data", system.options).end_replicas()


async def test_replicas_of_lost_jobs_are_listed_and_adopted_or_removed(restored: RestoredSystem) -> None:
    async with restored.running():
        pass
    restored.back_up()
    async with restored.running() as muster:
        kept = await start(muster, restored.counted("kept", "go"))
        dropped = await start(muster, restored.counted("dropped", "never"))
    restored.restore()

    async with restored.running() as muster:
        found = await orphans(muster, 2)
        assert {name: orphan.job_id for name, orphan in found.items()} == {"kept": kept, "dropped": dropped}
        assert [(one.node, one.state) for one in found["kept"].replicas] == [
            ("n1", job_pb2.REPLICA_STATE_RUNNING)
        ]
        assert 86_000 < found["kept"].removal_at.seconds - found["kept"].found_at.seconds <= 86_400
        assert [one.job_id async for one in muster.list()] == []
        # The orphans use the whole node, as soon as it is reported.
        async with asyncio.timeout(20):
            while (await muster.node("n1")).foreign.cpu_milli != 2000:
                await asyncio.sleep(0.1)
        waiting = await submit(muster, restored.counted("waiting", "go"))
        await wait_for_phase(muster, waiting, QUEUED)

        await muster.adopt_orphan(kept)
        await wait_for_phase(muster, kept, RUNNING)
        await orphans(muster, 1)
        assert await muster.adopt_orphan(kept)
        await muster.remove_orphan(dropped)
        await orphans(muster, 0)
        with pytest.raises(NotFound):
            await muster.adopt_orphan("j-aaaaaaaaaaaaaaaa")

        # The removed orphan has left the node to the waiting job.
        await wait_for_phase(muster, waiting, RUNNING)
        (restored.folder / "go").touch()
        for job_id in (kept, waiting):
            ended = await muster.wait(job_id)
            assert (ended.status.phase, ended.status.attempt) == (SUCCEEDED, 1)
        assert [restored.starts(name) for name in ("kept", "dropped", "waiting")] == [1, 1, 1]


async def test_marks_survive_a_restart_and_an_orphan_without_its_specification_cannot_be_adopted(
    restored: RestoredSystem,
) -> None:
    async with restored.running():
        pass
    restored.back_up()
    async with restored.running() as muster:
        lost = await start(muster, restored.counted("lost", "go"))
    restored.restore()
    async with restored.running() as muster:
        found = (await orphans(muster, 1))["lost"]
    (restored.folder / "data" / "replicas" / "jobs" / lost / "job.json").unlink()

    async with restored.running() as muster:
        again = (await orphans(muster, 1))[""]
        assert (again.job_id, again.found_at, again.adoptable) == (lost, found.found_at, False)
        with pytest.raises(Rejected, match="is not retained"):
            await muster.adopt_orphan(lost)
        await muster.remove_orphan(lost)
        await orphans(muster, 0)


async def test_a_record_behind_its_replicas_continues_from_them(restored: RestoredSystem) -> None:
    async with restored.running() as muster:
        early = await start(muster, restored.counted("early", "go"))
    restored.back_up()
    async with restored.running() as muster:
        await muster.restart(early)
        async with asyncio.timeout(20):
            while restored.starts("early") < 2:
                await asyncio.sleep(0.1)
        await wait_for_phase(muster, early, RUNNING)
    restored.restore()

    async with restored.running() as muster:
        async with asyncio.timeout(20):
            while (await muster.get(early)).status.attempt != 2:
                await asyncio.sleep(0.1)
        await wait_for_phase(muster, early, RUNNING)
        assert [orphan async for orphan in muster.orphans()] == []
        (restored.folder / "go").touch()
        ended = await muster.wait(early)
        assert (ended.status.phase, ended.status.attempt) == (SUCCEEDED, 2)
        assert job_pb2.JOB_EVENT_TYPE_JOB_ADOPTED in [entry.event for entry in ended.status.history]
        assert restored.starts("early") == 2


async def test_a_job_that_was_waiting_in_an_older_store_does_not_run_again_after_it_has_ended(
    restored: RestoredSystem,
) -> None:
    async with restored.running() as muster:
        await start(muster, restored.counted("running", "go", cpu=2))
        waiting = await submit(muster, restored.counted("waiting", "go"))
        await wait_for_phase(muster, waiting, QUEUED)
    restored.back_up()
    async with restored.running() as muster:
        (restored.folder / "go").touch()
        for name in ("running", "waiting"):
            assert (await muster.wait(name)).status.phase == SUCCEEDED
        async with asyncio.timeout(20):
            while list(restored.replicas.job_ids()):
                await asyncio.sleep(0.1)
    restored.restore()

    async with restored.running() as muster:
        for name in ("running", "waiting"):
            assert (await muster.wait(name)).status.phase == SUCCEEDED
        # At once, not only when it is placed again.
        history = (await muster.get("waiting")).status.history
        assert job_pb2.JOB_EVENT_TYPE_JOB_ADOPTED in [entry.event for entry in history]
        assert [orphan async for orphan in muster.orphans()] == []
    assert [restored.starts(name) for name in ("running", "waiting")] == [1, 1]
