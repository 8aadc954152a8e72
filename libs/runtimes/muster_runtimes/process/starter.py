"""Starts replicas through the fork server, many at once but not all at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from muster_runtimes.ports import Observation, ReplicaId
from muster_runtimes.process.folder import settle
from muster_runtimes.process.forkserver import ForkServer
from muster_runtimes.process.layout import Layout
from muster_runtimes.process.records import SPEC, Spec, Stage, State, replace
from muster_runtimes.process.watcher import Watcher

_TRIES = 3
_ANSWER_PATIENCE_S = 5.0
_SETTLE_LOOKS = 500
_SETTLE_LOOK_S = 0.01


class Starter:
    """Every start may be asked for again, by anyone, at any time: the shims sort out which of them runs the replica."""

    def __init__(self, *, layout: Layout, watcher: Watcher, clock: Callable[[], int], parallel: int) -> None:
        self._layout = layout
        self._watcher = watcher
        self._clock = clock
        self._slots = asyncio.Semaphore(parallel)
        self._server = ForkServer(root=layout.root, heard=self._heard, died=self._give_up)
        self._answers: dict[str, asyncio.Future[str]] = {}

    async def start(self, replica: ReplicaId, spec: Spec) -> Observation:
        """Run ``spec`` unless the replica has begun before; what stands now."""
        async with self._slots:
            replace(self._folder(replica) / SPEC, msgspec.json.encode(spec))
            problem = ""
            for _ in range(_TRIES):
                problem = await self._ask(self._layout.name(replica))
                seen = self._watcher.refresh(replica)
                if seen is not None:
                    return seen
        return await self.settle(replica, Stage.REJECTED, problem or "its shim did not start")

    async def settle(
        self, replica: ReplicaId, stage: Stage, reason: str, *, exit_code: int | None = None
    ) -> Observation:
        """Let the replica never start, unless it has; what stands now. Raises ``TimeoutError`` where a shim neither starts nor ends."""
        verdict = State(state=stage, at=self._clock(), reason=reason, exit_code=exit_code)
        folder = self._folder(replica)
        for _ in range(_SETTLE_LOOKS):
            settle(folder, verdict)
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
