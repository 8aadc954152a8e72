"""A root for process runtimes, with the words that the tests are written in."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from muster_core.models import ENDED_STATES, Node, Resources, Template
from muster_runtimes import Launch, Observation, ReplicaId
from muster_runtimes.process import ProcessOptions, ProcessRuntime
from muster_runtimes.process.state_files import ShimState, StateDirectory, read_state

Found = TypeVar("Found")

PATIENCE_S = 30.0
MARK = "MUSTER_TEST_ROOM"
NODE = Node(name="here", allocatable=Resources(cpu=4000, memory=2**33, gpu=4000))


def worker(index: int = 0, *, job_id: str = "job-1", attempt: int = 1, restart: int = 0) -> ReplicaId:
    return ReplicaId(job_id=job_id, attempt=attempt, role="worker", index=index, restart=restart)


def now() -> int:
    return time.time_ns() // 1000


class Room:
    """Everything of one test lies under ``path``; ``workdir`` is where replicas work, ``root`` the runtimes' root."""

    def __init__(self, path: Path) -> None:
        self.root = path / "root"
        self.workdir = path / "work"
        self.workdir.mkdir()
        self.layout = StateDirectory(self.root)
        self._watching: dict[ProcessRuntime, asyncio.Task[None]] = {}

    def runtime(self, options: ProcessOptions | None = None) -> ProcessRuntime:
        """A runtime on this root, watching."""
        runtime = ProcessRuntime(
            root=self.root,
            nodes=[NODE],
            workdir=self.workdir,
            environ=os.environ,
            clock=now,
            options=options or ProcessOptions(rescan_s=0.2),
        )
        self._watching[runtime] = asyncio.create_task(runtime.run())
        return runtime

    async def leave(self, runtime: ProcessRuntime) -> None:
        """End a runtime as an orderly launcher does; its replicas go on."""
        task = self._watching.pop(runtime)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def launch(self, replica: ReplicaId, *command: str, env: dict[str, str] | None = None) -> Launch:
        """A launch of ``command`` on the one node."""
        return Launch(
            replica=replica,
            name=f"{replica.job_id}-{replica.role}-{replica.index}",
            node=NODE.name,
            template=Template(command=command),
            env={MARK: str(self.root), **(env or {})},
        )

    def python(self, replica: ReplicaId, program: str, *args: str) -> Launch:
        """A launch of a Python program; it says things with ``print(..., flush=True)``."""
        return self.launch(replica, sys.executable, "-S", "-c", program, *args)

    async def ended(self, runtime: ProcessRuntime, replica: ReplicaId) -> Observation:
        """The observation of the replica's end, once it comes."""

        def find() -> Observation | None:
            seen = {one.replica: one for one in runtime.job_observations(replica.job_id)}.get(replica)
            return seen if seen is not None and seen.state in ENDED_STATES else None

        return await told(runtime, find)

    async def says(self, runtime: ProcessRuntime, replica: ReplicaId, words: bytes) -> bytes:
        """What the replica wrote, once ``words`` are in it."""
        written = b""
        async with asyncio.timeout(PATIENCE_S):
            async for chunk in runtime.logs(replica.job_id, [replica], follow=True, tail=None):
                written += chunk.data
                if words in written:
                    return written
        raise AssertionError(f"{replica} ended without saying {words!r}: {written!r}")

    async def output(self, runtime: ProcessRuntime, *replicas: ReplicaId, tail: int | None = None) -> bytes:
        """What the replicas have written by now."""
        job_id = replicas[0].job_id
        chunks = runtime.logs(job_id, replicas, follow=False, tail=tail)
        return b"".join([chunk.data async for chunk in chunks])

    def state(self, replica: ReplicaId) -> ShimState:
        """What the replica's folder says."""
        state = read_state(self.layout.replica(replica))
        assert state is not None
        return state

    def fork_server(self, started: ReplicaId) -> int:
        """The pid of the server that forked the replica's shim."""
        stat = Path(f"/proc/{self.state(started).shim_pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])

    def processes(self) -> list[int]:
        """The pids of all replicas and shims of this room that are alive."""
        return [pid for pid in _pids() if self._is_ours(pid)]

    async def clear(self) -> None:
        """Kill whatever the test left, and close the runtimes."""
        for runtime in list(self._watching):
            await self.leave(runtime)
        async with asyncio.timeout(PATIENCE_S):
            while left := self.processes():
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.01)

    def _is_ours(self, pid: int) -> bool:
        try:
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words += Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False
        return bool({f"{MARK}={self.root}".encode(), str(self.root).encode()} & set(words))


async def told(runtime: ProcessRuntime, find: Callable[[], Found | None]) -> Found:
    """What ``find`` gives, looked for again whenever the runtime says that something changed."""
    async with asyncio.timeout(PATIENCE_S):
        changes = runtime.job_changes()
        while (found := find()) is None:
            await anext(changes)
        return found


def alive(pid: int) -> bool:
    """Whether there is such a process that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
