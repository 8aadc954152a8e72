import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from muster_core.models import Node, Resources, Template
from muster_local.replicas import end_replicas, running_replicas
from muster_local.system import LocalSystem
from muster_runtimes import Launch, ReplicaId
from muster_runtimes.process import ProcessRuntime, Stage, StateDirectory, read_state

IGNORE_TERM = "trap '' TERM; while :; do sleep 1; done"


@asynccontextmanager
async def launcher(root: Path) -> AsyncGenerator[ProcessRuntime]:
    """A runtime that stops and leaves its replicas running."""
    node = Node(name="n1", allocatable=Resources(cpu=4000))
    runtime = ProcessRuntime(
        root=root, nodes=[node], workdir=root, environ=os.environ, clock=lambda: time.time_ns() // 1000
    )
    watch = asyncio.create_task(runtime.run())
    try:
        yield runtime
    finally:
        watch.cancel()
        await asyncio.wait({watch})


def replica(index: int) -> ReplicaId:
    return ReplicaId(job_id="j-1", attempt=1, role="worker", index=index)


async def leave_replicas(root: Path, *commands: str) -> None:
    async with launcher(root) as runtime:
        for index, command in enumerate(commands):
            await runtime.start(
                Launch(
                    replica=replica(index),
                    name=f"r{index}",
                    node="n1",
                    template=Template(command=("/bin/sh", "-c", command)),
                    env={},
                )
            )


async def test_replicas_without_a_launcher_are_found_and_ended(tmp_path: Path) -> None:
    root = tmp_path
    await leave_replicas(root, "sleep 60", IGNORE_TERM)
    assert len(running_replicas(root)) == 2
    assert await end_replicas(root, grace_s=0.2) == 2
    assert running_replicas(root) == []
    state = read_state(StateDirectory(root).replica(replica(0)))
    assert state is not None
    assert state.state is Stage.EXITED


async def test_a_wipe_stops_replicas_before_it_removes_their_directories(tmp_path: Path) -> None:
    system = LocalSystem(tmp_path)
    system.directory.make()
    await leave_replicas(tmp_path / "replicas", "sleep 60")
    assert system.running_replicas() == 1
    assert await system.wipe() == 1
    assert list((tmp_path / "replicas").iterdir()) == []


def test_a_directory_without_jobs_has_no_replicas(tmp_path: Path) -> None:
    assert running_replicas(tmp_path / "nowhere") == []
