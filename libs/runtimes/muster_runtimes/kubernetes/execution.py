"""Commands in pods: the ``exec`` subresource, over a WebSocket."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec

from muster_runtimes.kubernetes.sockets import Socket
from muster_runtimes.reach import NOT_FOUND, NOT_RUN, CannotReach, Command, Ended, Size, Written

CLOSING = "v5.channel.k8s.io"
"""The protocol in which a channel can be closed."""

PROTOCOLS = (CLOSING, "v4.channel.k8s.io")

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


def query_of(command: Command, container: str) -> list[tuple[str, str]]:
    """What the subresource is asked."""
    in_terminal = command.terminal is not None
    return [
        *(("command", word) for word in command.words),
        ("container", container),
        ("stdin", _flag(command.has_input)),
        ("stdout", "true"),
        ("stderr", _flag(not in_terminal)),
        ("tty", _flag(in_terminal)),
    ]


class PodExecution:
    """A command in a pod.

    Input is sent as it is taken. Where much of it were on its way when the command ends, the API server or a kubelet would find that it
    cannot be delivered, and break the connection before it has passed on how the command ended.
    """

    def __init__(self, socket: Socket, *, has_input: bool, in_terminal: bool) -> None:
        self._socket = socket
        self._has_input = has_input
        self._in_terminal = in_terminal
        self._ended: Ended | None = None

    async def write(self, data: bytes) -> None:
        """See ``Execution``."""
        if self._has_input:
            for start in range(0, len(data), _FRAME_BYTES):
                part = data[start : start + _FRAME_BYTES]
                await self._socket.taken(but=_MOST_AHEAD_BYTES - len(part))
                await self._send(_STDIN, part, is_counted=True)

    async def end_input(self) -> None:
        """See ``Execution``. Servers before Kubernetes 1.30 cannot be told."""
        if not self._has_input:
            return
        if self._in_terminal:
            await self._send(_STDIN, b"\x04")
        elif self._socket.protocol == CLOSING:
            await self._send(_CLOSE, bytes((_STDIN,)))

    async def resize(self, size: Size) -> None:
        """See ``Execution``."""
        if self._in_terminal:
            await self._send(_SIZE, msgspec.json.encode({"Width": size.columns, "Height": size.rows}))

    async def output(self) -> AsyncIterator[Written]:
        """See ``Execution``."""
        while (frame := await self._socket.receive()) is not None:
            channel, data = frame
            if channel == _STATUS:
                self._ended = read_status(data)
            elif channel in {_STDOUT, _STDERR}:
                yield Written(data, is_error=channel == _STDERR)

    async def ended(self) -> Ended:
        """See ``Execution``."""
        if self._ended is None:
            raise CannotReach(
                "the connection to the pod was lost; the command may have been ended", is_away=True
            )
        return self._ended

    async def _send(self, channel: int, data: bytes, *, is_counted: bool = False) -> None:
        try:
            await self._socket.send(channel, data, is_counted=is_counted)
        except ConnectionError:
            # How it ended is read on the other side.
            return


def read_status(data: bytes) -> Ended:
    """How a command ended, by the API server's words for it."""
    try:
        said = msgspec.json.decode(data, type=_Status)
    except msgspec.DecodeError:
        return Ended(NOT_RUN, data.decode(errors="replace").strip())
    if said.status == "Success":
        return Ended(0)
    for cause in said.details.causes if said.details else ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return Ended(int(cause.message))
    message = _RUNTIME_WORDS.sub("", said.message) or said.reason or "the command could not be run"
    return Ended(NOT_FOUND if _MISSING.search(said.message) else NOT_RUN, message)


def _flag(value: bool) -> str:
    return "true" if value else "false"
