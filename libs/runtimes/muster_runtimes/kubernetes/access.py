"""DOC."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import msgspec

from muster_core.models import ReplicaState
from muster_runtimes.kubernetes.api_client import ApiClient, KubernetesApiError, ObjectNotFound
from muster_runtimes.kubernetes.informers import ReplicaStore
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.websocket import PodWebSocket
from muster_runtimes.kubernetes.writer import collection_path
from muster_runtimes.protocols import (
    NOT_FOUND,
    NOT_RUN,
    ExecCommand,
    ExecResult,
    OutputChunk,
    ReplicaId,
    ReplicaUnreachable,
    TerminalSize,
)

CLOSING = "v5.channel.k8s.io"
"""The protocol in which a channel can be closed."""

EXEC_PROTOCOLS = (CLOSING, "v4.channel.k8s.io")

_STDIN, _STDOUT, _STDERR, _STATUS, _SIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_FRAME_BYTES = 32 * 1024
_MOST_AHEAD_BYTES = 2 * _FRAME_BYTES
_MISSING = re.compile(r"no such file or directory|not found in \$PATH", re.IGNORECASE)
_RUNTIME_WORDS = re.compile(r".*(?:OCI runtime exec failed:\s*)(?:exec failed:\s*)?", re.DOTALL)


class _Cause(msgspec.Struct, frozen=True):
    """Part of why."""

    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    """Of what a status says."""

    causes: tuple[_Cause, ...] = ()


class _Status(msgspec.Struct, frozen=True):
    """How a command ended."""

    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def query_of(command: ExecCommand, container: str) -> list[tuple[str, str]]:
    """What the subresource is asked."""
    in_terminal = command.terminal is not None
    return [
        *(("command", word) for word in command.argv),
        ("container", container),
        ("stdin", _flag(command.has_input)),
        ("stdout", "true"),
        ("stderr", _flag(not in_terminal)),
        ("tty", _flag(in_terminal)),
    ]


class PodExecSession:
    """A command in a pod.

    Input is sent as it is taken. Where much of it were on its way when the command ends, the API server or a kubelet would find that it
    cannot be delivered, and break the connection before it has passed on how the command ended.
    """

    def __init__(self, socket: PodWebSocket, *, has_input: bool, in_terminal: bool) -> None:
        self._socket = socket
        self._has_input = has_input
        self._in_terminal = in_terminal
        self._ended: ExecResult | None = None

    async def write(self, data: bytes) -> None:
        """See ``ExecSession``."""
        if self._has_input:
            for start in range(0, len(data), _FRAME_BYTES):
                part = data[start : start + _FRAME_BYTES]
                await self._socket.taken(but=_MOST_AHEAD_BYTES - len(part))
                await self._send(_STDIN, part, is_counted=True)

    async def end_input(self) -> None:
        """See ``ExecSession``. Servers before Kubernetes 1.30 cannot be told."""
        if not self._has_input:
            return
        if self._in_terminal:
            await self._send(_STDIN, b"\x04")
        elif self._socket.protocol == CLOSING:
            await self._send(_CLOSE, bytes((_STDIN,)))

    async def resize(self, size: TerminalSize) -> None:
        """See ``ExecSession``."""
        if self._in_terminal:
            await self._send(_SIZE, msgspec.json.encode({"Width": size.columns, "Height": size.rows}))

    async def output(self) -> AsyncIterator[OutputChunk]:
        """See ``ExecSession``."""
        while (frame := await self._socket.receive()) is not None:
            channel, data = frame
            if channel == _STATUS:
                self._ended = read_status(data)
            elif channel in {_STDOUT, _STDERR}:
                yield OutputChunk(data, is_error=channel == _STDERR)

    async def ended(self) -> ExecResult:
        """See ``ExecSession``."""
        if self._ended is None:
            raise ReplicaUnreachable(
                "the connection to the pod was lost; the command may have been ended", is_unavailable=True
            )
        return self._ended

    async def _send(self, channel: int, data: bytes, *, is_counted: bool = False) -> None:
        try:
            await self._socket.send(channel, data, is_counted=is_counted)
        except ConnectionError:
            # How it ended is read on the other side.
            return


def read_status(data: bytes) -> ExecResult:
    """How a command ended, by the API server's words for it."""
    try:
        said = msgspec.json.decode(data, type=_Status)
    except msgspec.DecodeError:
        return ExecResult(NOT_RUN, data.decode(errors="replace").strip())
    if said.status == "Success":
        return ExecResult(0)
    for cause in said.details.causes if said.details else ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return ExecResult(int(cause.message))
    message = _RUNTIME_WORDS.sub("", said.message) or said.reason or "the command could not be run"
    return ExecResult(NOT_FOUND if _MISSING.search(said.message) else NOT_RUN, message)


def _flag(value: bool) -> str:
    return "true" if value else "false"


FORWARD_PROTOCOLS = ("v4.channel.k8s.io",)

_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
_QUIET_S = 5.0


class PodPortConnection:
    """A ``PortConnection`` to a port of a pod."""

    def __init__(self, socket: PodWebSocket, *, idle_timeout_s: float = _QUIET_S) -> None:
        self._socket = socket
        self._quiet_s = idle_timeout_s
        self._greeted: set[int] = set()
        self._is_half = asyncio.Event()
        self._over = asyncio.Event()

    async def read(self) -> bytes:
        """See ``PortConnection``."""
        while not self._over.is_set():
            frame = await self._next()
            if frame is None:
                self._over.set()
                break
            channel, data = frame
            if channel not in self._greeted:
                # Each channel begins with the number of its port.
                self._greeted.add(channel)
                data = data[_PORT_BYTES:]
            if channel == _ERROR and data:
                self._over.set()
                raise ConnectionRefusedError(_words(data))
            if data:
                return data
        return b""

    async def write(self, data: bytes) -> None:
        """See ``PortConnection``."""
        if not self._over.is_set():
            try:
                await self._socket.send(_DATA, data)
                return
            except ConnectionError:
                # Why it was closed is what the reader hears last, and for him to say.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._quiet_s):
                        await self._over.wait()
        raise ConnectionResetError("the pod has closed the connection")

    async def end(self) -> None:
        """See ``PortConnection``."""
        self._is_half.set()

    async def _next(self) -> tuple[int, bytes] | None:
        receiving = asyncio.create_task(self._socket.receive())
        half = asyncio.create_task(self._is_half.wait())
        try:
            await asyncio.wait([receiving, half], return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                await asyncio.wait([receiving], timeout=self._quiet_s)
            return receiving.result() if receiving.done() else None
        finally:
            for task in (receiving, half):
                task.cancel()
            await asyncio.gather(receiving, half, return_exceptions=True)


def _words(data: bytes) -> str:
    said = data.decode(errors="replace").strip()
    refused = "connection refused" in said.lower()
    return "nothing listens there in the pod" if refused else said


_FORBIDDEN = 403
_PASSING = frozenset({0, 429, 502, 503, 504})


class PodAccess:
    """Reaches the pods of ``runs``."""

    def __init__(self, *, api: ApiClient, runs: ReplicaStore) -> None:
        self._api = api
        self._runs = runs

    @asynccontextmanager
    async def execute(self, replica: ReplicaId, command: ExecCommand) -> AsyncGenerator[PodExecSession]:
        """See ``ReplicaAccess``."""
        pod = self._running(replica)
        container = pod.metadata.annotations.get(MAIN_CONTAINER, "")
        opened = self._api.socket(
            _path(pod, "exec"),
            query=query_of(command, container),
            protocols=EXEC_PROTOCOLS,
        )
        try:
            async with opened as socket:
                session = PodExecSession(
                    socket, has_input=command.has_input, in_terminal=command.terminal is not None
                )
                if command.terminal is not None:
                    await session.resize(command.terminal)
                yield session
        except KubernetesApiError as error:
            raise _refusal(error, replica, "pods/exec") from error

    @asynccontextmanager
    async def connect(self, replica: ReplicaId, port: int) -> AsyncGenerator[PodPortConnection]:
        """See ``ReplicaAccess``."""
        pod = self._running(replica)
        opened = self._api.socket(
            _path(pod, "portforward"), query=[("ports", str(port))], protocols=FORWARD_PROTOCOLS
        )
        try:
            async with opened as socket:
                yield PodPortConnection(socket)
        except KubernetesApiError as error:
            raise _refusal(error, replica, "pods/portforward") from error

    def _running(self, replica: ReplicaId) -> Pod:
        seen = self._runs.observation(replica)
        pod = self._runs.pod(replica)
        if seen is None or pod is None or seen.state is not ReplicaState.RUNNING:
            raise ReplicaUnreachable(f"{replica.role}-{replica.index} does not run")
        return pod


def _path(pod: Pod, subresource: str) -> str:
    metadata = pod.metadata
    return f"{collection_path(metadata.namespace, 'pods')}/{quote(metadata.name)}/{subresource}"


def _refusal(error: KubernetesApiError, replica: ReplicaId, right: str) -> ReplicaUnreachable:
    name = f"{replica.role}-{replica.index}"
    if error.status == _FORBIDDEN:
        return ReplicaUnreachable(f"pod-launcher may not do that in the cluster ({right}): {error}")
    if isinstance(error, ObjectNotFound):
        return ReplicaUnreachable(f"{name} does not run any more: {error}")
    return ReplicaUnreachable(f"{name} cannot be reached: {error}", is_unavailable=error.status in _PASSING)
