"""Starts replicas through a fork server, a child process that forks the shims; a bounded number at once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from muster_runtimes.process.state_files import (
    SPEC,
    ReplicaSpec,
    ShimState,
    Stage,
    StateDirectory,
    finish_unstarted,
    replace,
)
from muster_runtimes.process.watcher import ReplicaWatcher
from muster_runtimes.protocols import Observation, ReplicaId

_SHIM = Path(__file__).with_name("shim.py")
_END_S = 5.0


class ForkServer:
    """The fork server, started when first needed and again after its death.

    It runs in its own session, so that Ctrl-C in a terminal or the end of pod-launcher's process group does not reach the shims.

    Args:
        root: The root of the state directory.
        on_answer: Called with the name of a run and a problem, which is empty if the run's directory has the result.
        on_death: Called if the server dies; it will not answer outstanding requests.
    """

    def __init__(
        self, *, root: Path, on_answer: Callable[[str, str], None], on_death: Callable[[], None]
    ) -> None:
        self._root = root
        self._on_answer = on_answer
        self._on_death = on_death
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def fork(self, name: str) -> None:
        """Request a shim for the run ``name``, its directory relative to the root. Needs a running event loop."""
        for _ in range(2):
            process = self._process or self._start()
            assert process.stdin is not None
            try:
                os.write(process.stdin.fileno(), f"{name}\n".encode())
            except BrokenPipeError:
                self.close()
            else:
                return
        raise ChildProcessError("the fork server exits at once")

    def close(self) -> None:
        """End the server; shims and replicas continue."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(process.stdout.fileno())
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-X", "utf8", str(_SHIM), str(self._root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            bufsize=0,
            start_new_session=True,
        )
        assert process.stdout is not None
        asyncio.get_running_loop().add_reader(process.stdout.fileno(), self._read, process)
        self._process = process
        self._rest = b""
        return process

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            self.close()
            self._on_death()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, _, problem = line.decode().partition("\t")
            self._on_answer(name, problem)


_ATTEMPTS = 3
_ANSWER_S = 5.0
_FINISH_POLLS = 500
_FINISH_POLL_S = 0.01


class ReplicaStarter:
    """Starts replicas. Any instance may repeat a start at any time: the lock of the run decides which shim runs the replica."""

    def __init__(
        self, *, directory: StateDirectory, watcher: ReplicaWatcher, clock: Callable[[], int], parallel: int
    ) -> None:
        self._directory = directory
        self._watcher = watcher
        self._clock = clock
        self._slots = asyncio.Semaphore(parallel)
        self._server = ForkServer(
            root=directory.root, on_answer=self._handle_answer, on_death=self._retry_all
        )
        self._answers: dict[str, asyncio.Future[str]] = {}

    async def start(self, replica: ReplicaId, spec: ReplicaSpec) -> Observation:
        """Start a replica unless it has started before, and return its state."""
        async with self._slots:
            if (seen := self._watcher.refresh(replica)) is not None:
                return seen
            group = spec.user or None
            replace(self._directory.open_replica(replica) / SPEC, msgspec.json.encode(spec), group=group)
            problem = ""
            for _ in range(_ATTEMPTS):
                problem = await self._fork(self._directory.name(replica))
                observation = self._watcher.refresh(replica)
                if observation is not None:
                    return observation
        return await self.finish(replica, Stage.REJECTED, problem or "the shim did not start")

    async def finish(
        self, replica: ReplicaId, stage: Stage, reason: str, *, exit_code: int | None = None
    ) -> Observation:
        """Record the final state of a replica that has not started, and return its state.

        Raises:
            TimeoutError: A shim holds the lock, and neither starts the replica nor ends.
        """
        final = ShimState(state=stage, at=self._clock(), reason=reason, exit_code=exit_code)
        folder = self._directory.open_replica(replica)
        for _ in range(_FINISH_POLLS):
            finish_unstarted(folder, final)
            observation = self._watcher.refresh(replica)
            if observation is not None:
                return observation
            await asyncio.sleep(_FINISH_POLL_S)
        raise TimeoutError(f"{folder} is locked by a shim that does not start the replica")

    def close(self) -> None:
        """End the fork server; the next start starts a new one."""
        self._server.close()

    async def _fork(self, name: str) -> str:
        """Request a shim and return its problem; empty if the run's directory has the result, or if no answer came."""
        answer = self._answers.get(name)
        if answer is None:
            answer = self._answers[name] = asyncio.get_running_loop().create_future()
        self._server.fork(name)
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await asyncio.shield(answer)
        except TimeoutError:
            return ""

    def _handle_answer(self, name: str, problem: str) -> None:
        answer = self._answers.pop(name, None)
        if answer is not None:
            answer.set_result(problem)
        replica = self._directory.replica_at(name)
        if replica is not None:
            self._watcher.refresh(replica)

    def _retry_all(self) -> None:
        """Make every waiting start read its directory and request a shim again."""
        for name in list(self._answers):
            self._answers.pop(name).set_result("")
