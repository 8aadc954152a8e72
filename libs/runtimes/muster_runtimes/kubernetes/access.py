"""Commands in pods and connections to their ports: the subresources ``exec`` and ``portforward``, each over a WebSocket.

The pod's node makes the connections, so no route to the pods is needed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import msgspec

from muster_core.models import ReplicaState
from muster_runtimes.kubernetes.api_client import ApiClient, collection_path
from muster_runtimes.kubernetes.errors import FORBIDDEN, KubernetesApiError, ObjectNotFound
from muster_runtimes.kubernetes.informers import ReplicaStore
from muster_runtimes.kubernetes.labels import MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import Pod
from muster_runtimes.kubernetes.websocket import PodWebSocket
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

EXEC_V5 = "v5.channel.k8s.io"
"""The exec protocol with a channel for the end of stdin (Kubernetes 1.30)."""

EXEC_PROTOCOLS = (EXEC_V5, "v4.channel.k8s.io")
FORWARD_PROTOCOLS = ("v4.channel.k8s.io",)

_STDIN, _STDOUT, _STDERR, _STATUS, _SIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_FRAME_BYTES = 32 * 1024
_MAX_UNREAD_BYTES = 2 * _FRAME_BYTES
_MISSING = re.compile(r"no such file or directory|not found in \$PATH", re.IGNORECASE)
_OCI_PREFIX = re.compile(r".*(?:OCI runtime exec failed:\s*)(?:exec failed:\s*)?", re.DOTALL)

_DATA, _ERROR = 0, 1
_PORT_BYTES = 2
_HALF_CLOSED_IDLE_S = 5.0

_TRANSIENT = frozenset({0, 429, 502, 503, 504})


class _Cause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _ExecStatus(msgspec.Struct, frozen=True):
    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


def exec_query(command: ExecCommand, container: str) -> list[tuple[str, str]]:
    """Return the query parameters of an exec request."""
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
    """An ``ExecSession`` in a pod.

    Unread input is bounded: with much input in flight at the end of the command, the API server or the kubelet fails to deliver it and
    breaks the connection before it passes on the exit code.
    """

    def __init__(self, websocket: PodWebSocket, *, has_input: bool, in_terminal: bool) -> None:
        self._websocket = websocket
        self._has_input = has_input
        self._in_terminal = in_terminal
        self._result: ExecResult | None = None

    async def write(self, data: bytes) -> None:
        """See ``ExecSession``."""
        if self._has_input:
            for start in range(0, len(data), _FRAME_BYTES):
                part = data[start : start + _FRAME_BYTES]
                await self._websocket.wait_until_read(except_bytes=_MAX_UNREAD_BYTES - len(part))
                await self._send(_STDIN, part, is_counted=True)

    async def end_input(self) -> None:
        """See ``ExecSession``. Servers before Kubernetes 1.30 do not support it without a terminal."""
        if not self._has_input:
            return
        if self._in_terminal:
            await self._send(_STDIN, b"\x04")
        elif self._websocket.protocol == EXEC_V5:
            await self._send(_CLOSE, bytes((_STDIN,)))

    async def resize(self, size: TerminalSize) -> None:
        """See ``ExecSession``."""
        if self._in_terminal:
            await self._send(_SIZE, msgspec.json.encode({"Width": size.columns, "Height": size.rows}))

    async def output(self) -> AsyncGenerator[OutputChunk]:
        """See ``ExecSession``."""
        while (frame := await self._websocket.receive()) is not None:
            channel, data = frame
            if channel == _STATUS:
                self._result = parse_exec_status(data)
            elif channel in {_STDOUT, _STDERR}:
                yield OutputChunk(data, is_error=channel == _STDERR)

    async def ended(self) -> ExecResult:
        """See ``ExecSession``."""
        if self._result is None:
            raise ReplicaUnreachable(
                "the connection to the pod was lost; the command may have been ended", is_unavailable=True
            )
        return self._result

    async def _send(self, channel: int, data: bytes, *, is_counted: bool = False) -> None:
        # ``output`` and ``ended`` report how a closed connection ended.
        with suppress(ConnectionError):
            await self._websocket.send(channel, data, is_counted=is_counted)


def parse_exec_status(data: bytes) -> ExecResult:
    """Decode the status channel of an exec session: the exit code, or why the command did not run."""
    try:
        status = msgspec.json.decode(data, type=_ExecStatus)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ExecResult(NOT_RUN, data.decode(errors="replace").strip())
    if status.status == "Success":
        return ExecResult(0)
    for cause in status.details.causes if status.details else ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return ExecResult(int(cause.message))
    message = _OCI_PREFIX.sub("", status.message) or status.reason or "the command could not be run"
    return ExecResult(NOT_FOUND if _MISSING.search(status.message) else NOT_RUN, message)


class PodPortConnection:
    """A ``PortConnection`` to a pod.

    The protocol cannot close one direction. After ``end`` the connection stays open while the pod sends, and for ``idle_s`` after that.
    """

    def __init__(self, websocket: PodWebSocket, *, idle_s: float = _HALF_CLOSED_IDLE_S) -> None:
        self._websocket = websocket
        self._idle_s = idle_s
        self._opened_channels: set[int] = set()
        self._half_closed = asyncio.Event()
        self._over = asyncio.Event()

    async def read(self) -> bytes:
        """See ``PortConnection``."""
        while not self._over.is_set():
            frame = await self._next()
            if frame is None:
                self._over.set()
                break
            channel, data = frame
            if channel not in self._opened_channels:
                # The first frame of each channel begins with the port number.
                self._opened_channels.add(channel)
                data = data[_PORT_BYTES:]
            if channel == _ERROR and data:
                self._over.set()
                raise ConnectionRefusedError(_forward_error(data))
            if data:
                return data
        return b""

    async def write(self, data: bytes) -> None:
        """See ``PortConnection``."""
        if not self._over.is_set():
            try:
                await self._websocket.send(_DATA, data)
                return
            except ConnectionError:
                # The reader receives the server's last frame, which has the cause, and raises it.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._idle_s):
                        await self._over.wait()
        raise ConnectionResetError("the pod has closed the connection")

    async def end(self) -> None:
        """See ``PortConnection``."""
        self._half_closed.set()

    async def _next(self) -> tuple[int, bytes] | None:
        receiving = asyncio.create_task(self._websocket.receive())
        half_closed = asyncio.create_task(self._half_closed.wait())
        try:
            await asyncio.wait([receiving, half_closed], return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                await asyncio.wait([receiving], timeout=self._idle_s)
            return receiving.result() if receiving.done() else None
        finally:
            for task in (receiving, half_closed):
                task.cancel()
            await asyncio.gather(receiving, half_closed, return_exceptions=True)


class PodAccess:
    """The ``ReplicaAccess`` of a cluster, to the pods in ``store``."""

    def __init__(self, *, api: ApiClient, store: ReplicaStore) -> None:
        self._api = api
        self._store = store

    @asynccontextmanager
    async def execute(self, replica: ReplicaId, command: ExecCommand) -> AsyncGenerator[PodExecSession]:
        """See ``ReplicaAccess``."""
        pod = self._running_pod(replica)
        container = pod.metadata.annotations.get(MAIN_CONTAINER, "")
        opened = self._api.websocket(
            _path(pod, "exec"), query=exec_query(command, container), protocols=EXEC_PROTOCOLS
        )
        try:
            async with opened as websocket:
                session = PodExecSession(
                    websocket, has_input=command.has_input, in_terminal=command.terminal is not None
                )
                if command.terminal is not None:
                    await session.resize(command.terminal)
                yield session
        except KubernetesApiError as error:
            raise _unreachable(error, replica, "pods/exec") from error

    @asynccontextmanager
    async def connect(self, replica: ReplicaId, port: int) -> AsyncGenerator[PodPortConnection]:
        """See ``ReplicaAccess``."""
        pod = self._running_pod(replica)
        opened = self._api.websocket(
            _path(pod, "portforward"), query=[("ports", str(port))], protocols=FORWARD_PROTOCOLS
        )
        try:
            async with opened as websocket:
                yield PodPortConnection(websocket)
        except KubernetesApiError as error:
            raise _unreachable(error, replica, "pods/portforward") from error

    def _running_pod(self, replica: ReplicaId) -> Pod:
        observation = self._store.observation(replica)
        pod = self._store.pod(replica)
        if observation is None or pod is None or observation.state is not ReplicaState.RUNNING:
            raise ReplicaUnreachable(f"{replica.role}-{replica.index} is not running")
        return pod


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _forward_error(data: bytes) -> str:
    message = data.decode(errors="replace").strip()
    refused = "connection refused" in message.lower()
    return "nothing listens on this port in the pod" if refused else message


def _path(pod: Pod, subresource: str) -> str:
    metadata = pod.metadata
    return f"{collection_path(metadata.namespace, 'pods')}/{quote(metadata.name)}/{subresource}"


def _unreachable(error: KubernetesApiError, replica: ReplicaId, permission: str) -> ReplicaUnreachable:
    name = f"{replica.role}-{replica.index}"
    if error.status == FORBIDDEN:
        return ReplicaUnreachable(f"pod-launcher lacks the permission {permission} in the cluster: {error}")
    if isinstance(error, ObjectNotFound):
        return ReplicaUnreachable(f"{name} is no longer running: {error}")
    return ReplicaUnreachable(f"{name} cannot be reached: {error}", is_unavailable=error.status in _TRANSIENT)
