"""Results of exec sessions, half-closed port connections, and the claims of pod templates."""

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
    ("status", "expected"),
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
def test_the_exec_status_is_parsed_to_a_result(status: bytes, expected: ExecResult):
    assert parse_exec_status(status) == expected


def test_a_terminal_has_no_separate_stderr():
    command = ExecCommand(argv=("ls", "-l"), has_input=True, terminal=TerminalSize(24, 80))
    query = exec_query(command, "main")
    assert [value for name, value in query if name == "command"] == ["ls", "-l"]
    assert {"stdin": "true", "stderr": "false", "tty": "true", "container": "main"}.items() <= dict(
        query
    ).items()


def test_a_template_names_claims_and_ephemeral_volumes():
    volumes: list[dict[str, Any]] = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "c", "emptyDir": {}},
        {"name": "d", "ephemeral": {"volumeClaimTemplate": {}}},
    ]
    pod = {"spec": {"volumes": volumes}}
    assert (claim_names(pod), ephemeral_volumes(pod), claim_names({})) == (["data"], ["d"], [])


class FakeWebSocket(PodWebSocket):
    """A fake WebSocket: received frames are put into it; None closes it."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue()
        self.sent: list[tuple[int, bytes]] = []

    async def send(self, channel: int, data: bytes, *, is_counted: bool = False) -> None:
        self.sent.append((channel, data))

    async def receive(self) -> tuple[int, bytes] | None:
        return await self.frames.get()


@pytest.fixture
def socket() -> FakeWebSocket:
    socket = FakeWebSocket()
    for channel in (0, 1):
        socket.frames.put_nowait((channel, b"\xb8\x22"))
    return socket


async def test_port_numbers_at_the_start_of_channels_are_skipped(socket: FakeWebSocket):
    connection = PodPortConnection(socket)
    socket.frames.put_nowait((0, b"hello"))
    socket.frames.put_nowait(None)

    assert [await connection.read(), await connection.read()] == [b"hello", b""]
    with pytest.raises(ConnectionResetError):
        await connection.write(b"too late")


async def test_a_closed_port_refuses_the_connection(socket: FakeWebSocket):
    socket.frames.put_nowait(
        (1, b"error forwarding port: dial tcp4 127.0.0.1:22: connect: connection refused")
    )

    with pytest.raises(ConnectionRefusedError, match="nothing listens on this port in the pod"):
        await PodPortConnection(socket).read()


async def test_a_half_closed_connection_receives_data_and_ends_when_idle(socket: FakeWebSocket):
    connection = PodPortConnection(socket, idle_s=0.05)
    await connection.write(b"a request")
    await connection.end()
    socket.frames.put_nowait((0, b"an answer"))

    async with asyncio.timeout(10):
        assert [await connection.read(), await connection.read()] == [b"an answer", b""]
    assert socket.sent == [(0, b"a request")]
