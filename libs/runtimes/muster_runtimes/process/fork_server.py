"""DOC."""

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
_END_PATIENCE_S = 5.0


class ForkServer:
    """One child process that forks shims; started when first needed, and again if it was killed.

    It lives in a session of its own, so that a terminal's Ctrl-C or the end of the launcher's process group does not reach
    the shims through it. ``heard(name, problem)`` is called for every answer, ``problem`` being empty where the folder tells, and
    ``died()`` where it ended by itself: what it had not answered yet, it will not.
    """

    def __init__(self, *, root: Path, heard: Callable[[str, str], None], died: Callable[[], None]) -> None:
        self._root = root
        self._heard = heard
        self._died = died
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def ask(self, name: str) -> None:
        """Have a shim forked for the replica folder ``name`` (relative to the root). Needs a running event loop."""
        for _ in range(2):
            process = self._process or self._start()
            assert process.stdin is not None
            try:
                os.write(process.stdin.fileno(), f"{name}\n".encode())
            except BrokenPipeError:
                self.close()
            else:
                return
        raise ChildProcessError("the fork server ends as soon as it starts")

    def close(self) -> None:
        """End the server; shims and replicas go on."""
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
            process.wait(_END_PATIENCE_S)
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
            self._died()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            name, _, problem = line.decode().partition("\t")
            self._heard(name, problem)


_TRIES = 3
_ANSWER_PATIENCE_S = 5.0
_SETTLE_LOOKS = 500
_SETTLE_LOOK_S = 0.01


class ReplicaStarter:
    """Every start may be asked for again, by anyone, at any time: the shims sort out which of them runs the replica."""

    def __init__(
        self, *, layout: StateDirectory, watcher: ReplicaWatcher, clock: Callable[[], int], parallel: int
    ) -> None:
        self._layout = layout
        self._watcher = watcher
        self._clock = clock
        self._slots = asyncio.Semaphore(parallel)
        self._server = ForkServer(root=layout.root, heard=self._heard, died=self._give_up)
        self._answers: dict[str, asyncio.Future[str]] = {}

    async def start(self, replica: ReplicaId, spec: ReplicaSpec) -> Observation:
        """Run ``spec`` unless the replica has begun before; what stands now."""
        async with self._slots:
            replace(self._folder(replica) / SPEC, msgspec.json.encode(spec))
            problem = ""
            for _ in range(_TRIES):
                problem = await self._ask(self._layout.name(replica))
                seen = self._watcher.refresh(replica)
                if seen is not None:
                    return seen
        return await self.finish_unstarted(replica, Stage.REJECTED, problem or "its shim did not start")

    async def finish_unstarted(
        self, replica: ReplicaId, stage: Stage, reason: str, *, exit_code: int | None = None
    ) -> Observation:
        """Let the replica never start, unless it has; what stands now. Raises ``TimeoutError`` where a shim neither starts nor ends."""
        verdict = ShimState(state=stage, at=self._clock(), reason=reason, exit_code=exit_code)
        folder = self._folder(replica)
        for _ in range(_SETTLE_LOOKS):
            finish_unstarted(folder, verdict)
            seen = self._watcher.refresh(replica)
            if seen is not None:
                return seen
            await asyncio.sleep(_SETTLE_LOOK_S)
        raise TimeoutError(f"{folder} is locked by a shim that does not say what it does")

    def close(self) -> None:
        """End the fork server; the next start brings up a new one."""
        self._server.close()

    async def _ask(self, name: str) -> str:
        """Have a shim forked and wait for its answer: a problem, or nothing where the folder tells (or nobody answered)."""
        answer = self._answers.get(name)
        if answer is None:
            answer = self._answers[name] = asyncio.get_running_loop().create_future()
        self._server.ask(name)
        try:
            async with asyncio.timeout(_ANSWER_PATIENCE_S):
                return await asyncio.shield(answer)
        except TimeoutError:
            return ""

    def _heard(self, name: str, problem: str) -> None:
        answer = self._answers.pop(name, None)
        if answer is not None:
            answer.set_result(problem)
        replica = self._layout.replica_at(name)
        if replica is not None:
            self._watcher.refresh(replica)

    def _give_up(self) -> None:
        """Let those who wait look at the folder and ask again."""
        for name in list(self._answers):
            self._answers.pop(name).set_result("")

    def _folder(self, replica: ReplicaId) -> Path:
        folder = self._layout.replica(replica)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
