"""What the API server says of a command, and what becomes of a connection of which one side has ended."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from muster_runtimes import ExecCommand, ExecResult, TerminalSize
from muster_runtimes.kubernetes.access import PodPortConnection, exec_query, parse_exec_status
from muster_runtimes.kubernetes.volume_claims import claim_names, ephemeral_volumes
from muster_runtimes.kubernetes.websocket import PodWebSocket

RUNTIME = (
    'Internal error occurred: error executing command in container: failed to exec in container: failed to start exec "ab12": '
    "OCI runtime exec failed: exec failed: unable to start container process: "
)


def failure(message: str, **details: object) -> bytes:
    return json.dumps({"status": "Failure", "message": message, "details": details}).encode()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b'{"metadata":{},"status":"Success"}', ExecResult(0)),
        (
            failure("command terminated with non-zero", causes=[{"reason": "ExitCode", "message": "7"}]),
            ExecResult(7),
        ),
        (
            failure(RUNTIME + 'exec: "nope": executable file not found in $PATH: unknown'),
            ExecResult(
                127,
                'unable to start container process: exec: "nope": executable file not found in $PATH: unknown',
            ),
        ),
        (
            failure(RUNTIME + 'exec: "/etc": permission denied: unknown'),
            ExecResult(126, 'unable to start container process: exec: "/etc": permission denied: unknown'),
        ),
        (b"no JSON", ExecResult(126, "no JSON")),
    ],
)
def test_how_a_command_ended_is_read_from_the_status(said: bytes, expected: ExecResult):
    assert parse_exec_status(said) == expected


def test_in_a_terminal_there_is_no_stderr():
    command = ExecCommand(argv=("ls", "-l"), has_input=True, terminal=TerminalSize(24, 80))
    stop_requested = exec_query(command, "main")
    assert [value for name, value in stop_requested if name == "command"] == ["ls", "-l"]
    assert {"stdin": "true", "stderr": "false", "tty": "true", "container": "main"}.items() <= dict(
        stop_requested
    ).items()


def test_claims_are_those_that_are_named_and_those_of_the_pod_s_own():
    volumes: list[dict[str, Any]] = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "c", "emptyDir": {}},
        {"name": "d", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    pod = {"spec": {"volumes": volumes}}
    assert (claim_names(pod), ephemeral_volumes(pod), claim_names({})) == (["data"], ["d"], [])


class SocketDouble(PodWebSocket):
    """Frames come as they are put in; None closes it."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self.sent: list[tuple[int, bytes]] = []

    async def send(self, channel: int, data: bytes, *, is_counted: bool = False) -> None:
        self.sent.append((channel, data))

    async def receive(self) -> tuple[int, bytes] | None:
        return await self.frames.get()


@pytest.fixture
def socket() -> SocketDouble:
    socket = SocketDouble()
    for channel in (0, 1):
        socket.frames.put_nowait((channel, b"\xb8\x22"))
    return socket


async def test_the_numbers_with_which_channels_begin_are_no_data(socket: SocketDouble):
    connection = PodPortConnection(socket)
    socket.frames.put_nowait((0, b"hello"))
    socket.frames.put_nowait(None)

    assert [await connection.read(), await connection.read()] == [b"hello", b""]
    with pytest.raises(ConnectionResetError):
        await connection.write(b"too late")


async def test_a_port_on_which_nobody_listens_is_said(socket: SocketDouble):
    socket.frames.put_nowait(
        (1, b"error forwarding port: dial tcp4 127.0.0.1:22: connect: connection refused")
    )

    with pytest.raises(ConnectionRefusedError, match="nothing listens on this port in the pod"):
        await PodPortConnection(socket).read()


async def test_once_nothing_more_is_sent_an_answer_still_comes_and_silence_ends_it(socket: SocketDouble):
    connection = PodPortConnection(socket, idle_s=0.05)
    await connection.write(b"a question")
    await connection.end()
    socket.frames.put_nowait((0, b"an answer"))

    async with asyncio.timeout(10):
        assert [await connection.read(), await connection.read()] == [b"an answer", b""]
    assert socket.sent == [(0, b"a question")]
