"""A state directory with process runtimes on it, and helpers for launches, observations and output."""

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

TIMEOUT_S = 30.0
MARK = "MUSTER_TEST_ROOT"
NODE = Node(name="here", allocatable=Resources(cpu=4000, memory=2**33, gpu=4000))


def worker(index: int = 0, *, job_id: str = "job-1", attempt: int = 1, restart: int = 0) -> ReplicaId:
    return ReplicaId(job_id=job_id, attempt=attempt, role="worker", index=index, restart=restart)


def now() -> int:
    return time.time_ns() // 1000


class RuntimeHarness:
    """Process runtimes on one state directory: ``root`` is the state directory, ``workdir`` the base of working directories."""

    def __init__(self, path: Path) -> None:
        self.root = path / "root"
        self.workdir = path / "work"
        self.workdir.mkdir()
        self.directory = StateDirectory(self.root)
        self._watching: dict[ProcessRuntime, asyncio.Task[None]] = {}

    def runtime(self, options: ProcessOptions | None = None) -> ProcessRuntime:
        """Start a runtime on this root."""
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
        """Shut a runtime down cleanly; its replicas continue to run."""
        task = self._watching.pop(runtime)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def launch(self, replica: ReplicaId, *command: str, env: dict[str, str] | None = None) -> Launch:
        """Return a launch of ``command`` on the only node."""
        return Launch(
            replica=replica,
            name=f"{replica.job_id}-{replica.role}-{replica.index}",
            node=NODE.name,
            template=Template(command=command),
            env={MARK: str(self.root), **(env or {})},
        )

    def python(self, replica: ReplicaId, program: str, *args: str) -> Launch:
        """Return a launch of a Python program, which must flush its output."""
        return self.launch(replica, sys.executable, "-S", "-c", program, *args)

    async def ended(self, runtime: ProcessRuntime, replica: ReplicaId) -> Observation:
        """Wait for the end of a replica."""

        def find() -> Observation | None:
            seen = {one.replica: one for one in runtime.job_observations(replica.job_id)}.get(replica)
            return seen if seen is not None and seen.state in ENDED_STATES else None

        return await wait_for(runtime, find)

    async def wait_for_output(self, runtime: ProcessRuntime, replica: ReplicaId, expected: bytes) -> bytes:
        """Wait until the output of a replica contains ``expected``, and return the output."""
        written = b""
        async with asyncio.timeout(TIMEOUT_S):
            async for chunk in runtime.logs(replica.job_id, [replica], follow=True, tail=None):
                written += chunk.data
                if expected in written:
                    return written
        raise AssertionError(f"{replica} ended without {expected!r} in its output: {written!r}")

    async def output(self, runtime: ProcessRuntime, *replicas: ReplicaId, tail: int | None = None) -> bytes:
        """Return the current output of replicas."""
        job_id = replicas[0].job_id
        chunks = runtime.logs(job_id, replicas, follow=False, tail=tail)
        return b"".join([chunk.data async for chunk in chunks])

    def state(self, replica: ReplicaId) -> ShimState:
        """Return the recorded state of a replica."""
        state = read_state(self.directory.replica(replica))
        assert state is not None
        return state

    def fork_server(self, started: ReplicaId) -> int:
        """Return the pid of the fork server of a replica."""
        stat = Path(f"/proc/{self.state(started).shim_pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])

    def processes(self) -> list[int]:
        """Return the pids of the living replicas and shims under this root."""
        return [pid for pid in _pids() if self._is_ours(pid)]

    async def clear(self) -> None:
        """Shut the runtimes down, and kill the remaining processes."""
        for runtime in list(self._watching):
            await self.leave(runtime)
        async with asyncio.timeout(TIMEOUT_S):
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


async def wait_for(runtime: ProcessRuntime, find: Callable[[], Found | None]) -> Found:
    """Call ``find`` after every reported change until it returns a value."""
    async with asyncio.timeout(TIMEOUT_S):
        changes = runtime.job_changes()
        while (found := find()) is None:
            await anext(changes)
        return found


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
