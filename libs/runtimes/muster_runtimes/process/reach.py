"""The way into replicas of this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import msgspec

from muster_core.models import ReplicaState
from muster_runtimes.ports import Observation, ReplicaId
from muster_runtimes.process.execution import ProcessExecution, execute
from muster_runtimes.process.folder import open_shim
from muster_runtimes.process.layout import Layout
from muster_runtimes.process.listening import listeners_of
from muster_runtimes.process.records import SPEC, Spec, Stage, State, read_state
from muster_runtimes.reach import CHUNK_BYTES, CannotReach, Command

_decoder = msgspec.json.Decoder(Spec)


class ProcessReach:
    """Reaches what runs under a ``layout``; ``refresh`` answers what stands of a replica now."""

    def __init__(self, *, layout: Layout, refresh: Callable[[ReplicaId], Observation | None]) -> None:
        self._layout = layout
        self._refresh = refresh
        self._commands: dict[ReplicaId, set[int]] = {}

    @asynccontextmanager
    async def execute(self, replica: ReplicaId, command: Command) -> AsyncGenerator[ProcessExecution]:
        """See ``Reach``."""
        state = self._running(replica)
        shim = open_shim(state)
        if shim is None:
            raise CannotReach(_not_running(replica))
        try:
            spec = _decoder.decode((self._layout.replica(replica) / SPEC).read_bytes())
            async with execute(spec, shim, command) as execution:
                commands = self._commands.setdefault(replica, set())
                commands.add(execution.pid)
                try:
                    yield execution
                finally:
                    commands.discard(execution.pid)
                    if not commands:
                        self._commands.pop(replica, None)
        finally:
            os.close(shim)

    @asynccontextmanager
    async def connect(self, replica: ReplicaId, port: int) -> AsyncGenerator[TcpConnection]:
        """See ``Reach``."""
        state = self._running(replica)
        # What somebody has started in it belongs to it as well.
        processes = {state.shim_pid, *self._commands.get(replica, ())}
        listeners = await asyncio.to_thread(listeners_of, processes)
        found = next((one for one in listeners if one.port == port), None)
        if found is None:
            known = sorted({one.port for one in listeners})
            where = f"it listens on {', '.join(map(str, known))}" if known else "it listens on none"
            raise CannotReach(f"{replica.role}-{replica.index} does not listen on port {port}: {where}")
        try:
            reader, writer = await asyncio.open_connection(found.host, found.port, limit=CHUNK_BYTES)
        except OSError as error:
            raise CannotReach(
                f"{replica.role}-{replica.index} takes no connection on port {port}: {error.strerror}"
            ) from error
        try:
            yield TcpConnection(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _running(self, replica: ReplicaId) -> State:
        seen = self._refresh(replica)
        state = read_state(self._layout.replica(replica))
        if (
            seen is None
            or seen.state is not ReplicaState.RUNNING
            or state is None
            or state.state is not Stage.RUNNING
        ):
            raise CannotReach(_not_running(replica))
        return state


class TcpConnection:
    """A ``Connection`` on this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """See ``Connection``."""
        return await self._reader.read(CHUNK_BYTES)

    async def write(self, data: bytes) -> None:
        """See ``Connection``."""
        if self._writer.is_closing():
            raise ConnectionResetError("the replica has broken the connection off")
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        """See ``Connection``."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()


def _not_running(replica: ReplicaId) -> str:
    return f"{replica.role}-{replica.index} does not run"
