"""Connections to ports of replicas on this machine, through the gateway."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from pathlib import Path

import pytest
from documents import document
from harness import Connect, Launcher, submit, wait_for

from muster import AsyncClient, AsyncConnection, Client, Job, Rejected

TIMEOUT_S = 30
MUSTER = Path(sys.executable).with_name("muster")

# At the end of the input: sends its length and the input.
COUNT = """
import os, socket
server = socket.create_server(("127.0.0.1", int(os.environ["MUSTER_PORT"])))
while True:
    caller, _ = server.accept()
    received = b"".join(iter(lambda: caller.recv(65536), b""))
    caller.sendall(b"%d " % len(received) + received)
    caller.close()
"""
SERVE = "exec python -m http.server --bind 127.0.0.1 $MUSTER_PORT"


def service(directory: Path, *command: str) -> str:
    role = {
        "command": list(command),
        "workingDir": str(directory),
        "ports": [{"name": "http", "containerPort": 8888}],
        "resources": {"cpu": "100m"},
        "gracePeriod": 1,
    }
    return document("notes", kind="service", roles={"notebook": role})


async def running(muster: AsyncClient, document: str) -> Job:
    return await wait_for(muster, await submit(muster, document), lambda seen: bool(seen.status.address))


async def connected(muster: AsyncClient, job: Job, port: int = 0) -> AsyncConnection:
    """Connect once the program listens."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await muster.connect(job.job_id, port)
            except Rejected as error:
                assert "it listens on no port" in str(error)
                await asyncio.sleep(0.1)


def echoed(address: str, much: bytes) -> bytes:
    """Send and receive with the synchronous client."""
    with Client(address) as client, client.connect("notes", client.port("notes").port) as connection:
        sending = threading.Thread(target=lambda: (connection.write(much), connection.end()))
        sending.start()
        received = b"".join(iter(connection.read, b""))
        sending.join(TIMEOUT_S)
        return received


async def read_all(connection: AsyncConnection) -> bytes:
    received = b""
    async with asyncio.timeout(TIMEOUT_S):
        while data := await connection.read():
            received += data
    return received


async def test_each_direction_of_a_connection_closes_independently(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        job = await running(muster, service(tmp_path, "python", "-c", COUNT))
        target = await muster.port(job.job_id)
        assert (target.replica.role, target.port, target.name) == ("notebook", 8888, "http")
        much = b"some words\n" * 100_000

        for port in (0, 8888, int(job.status.address.rpartition(":")[2])):
            async with await connected(muster, job, port) as connection:
                await connection.write(much)
                await connection.end()
                assert await read_all(connection) == b"%d " % len(much) + much

        assert await asyncio.to_thread(echoed, system.address, much) == b"%d " % len(much) + much

        with pytest.raises(Rejected, match="notebook-0 does not listen on port 22: it listens on"):
            await muster.connect(job.job_id, 22)
        gateway = int(system.address.rpartition(":")[2])
        with pytest.raises(Rejected, match=f"does not listen on port {gateway}"):
            await muster.connect(job.job_id, gateway)


async def test_the_cli_listens_until_the_job_has_ended(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    (tmp_path / "note.txt").write_text("hello")
    async with launch() as system, connect(system) as muster:
        job = await running(muster, service(tmp_path, "sh", "-c", SERVE))
        await (await connected(muster, job)).__aexit__()
        muster_command = [str(MUSTER), "--server", system.address, "port-forward"]
        process = await asyncio.create_subprocess_exec(
            *muster_command, "notes", ":8888", "-o", "json", stdout=-1, stderr=-1
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(TIMEOUT_S):
                announced = json.loads(await process.stdout.readline())
                assert await fetch(announced["address"], "/note.txt") == b"hello"
                assert announced["url"] == f"http://{announced['address']}"

                port = announced["address"].rpartition(":")[2]
                again = await asyncio.create_subprocess_exec(
                    *muster_command, "notes", f"{port}:8888", stderr=-1
                )
                _, errors = await again.communicate()
                assert f"port {port} of 127.0.0.1 is in use: choose another" in errors.decode()

                await muster.cancel(job.job_id)
                _, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
                await process.wait()
        assert (process.returncode, errors.decode()) == (1, "muster: notes has ended: Cancelled\n")


async def test_a_connection_that_cannot_be_forwarded_is_reset(
    launch: Launcher, connect: Connect, tmp_path: Path
) -> None:
    async with launch() as system, connect(system) as muster:
        await running(muster, service(tmp_path, "sleep", "600"))
        command = [str(MUSTER), "--server", system.address, "port-forward", "notes", ":8888", "-o", "name"]
        process = await asyncio.create_subprocess_exec(*command, stdout=-1, stderr=-1)
        try:
            assert process.stdout is not None
            async with asyncio.timeout(TIMEOUT_S):
                address = (await process.stdout.readline()).decode().strip()
                with pytest.raises(ConnectionResetError):
                    await fetch(address, "/note.txt")
        finally:
            process.kill()
            await process.wait()


async def fetch(address: str, path: str) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer.partition(b"\r\n\r\n")[2]
