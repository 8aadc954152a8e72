"""The client's side of commands in replicas and of forwarded ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from grpc import StatusCode

from muster import AsyncClient, Client, ConnectionLost, MusterError, NotFound, Rejected
from muster_rpc.v1 import job_service_pb2

if TYPE_CHECKING:
    from tests.component.client.conftest import GatewayDouble


def test_a_command_gets_its_input_and_its_exit_code_comes_back(gateway: GatewayDouble, address: str) -> None:
    gateway.exec_ends = job_service_pb2.ExecEnded(exit_code=3)
    with Client(address) as client, client.exec("demo", ["cat"], stdin=True) as command:
        command.write(b"one")
        command.write(b"two")
        command.end_input()
        expected = b"".join(output.data for output in command)
        assert (expected, command.replica, command.exit_code) == (b"onetwo", "worker-0", 3)


def test_a_rejected_command_shows_the_reason(gateway: GatewayDouble, address: str) -> None:
    gateway.failures["ExecJob"] = [(StatusCode.NOT_FOUND, "no replica worker-9 of demo")]
    with (
        Client(address) as client,
        pytest.raises(NotFound, match="worker-9"),
        client.exec("demo", ["true"], replica="worker-9") as command,
    ):
        list(command)


def test_a_port_is_asked_for_before_anybody_connects(gateway: GatewayDouble, address: str) -> None:
    with Client(address) as client:
        opened = client.port("demo")
    assert (opened.replica.role, opened.replica.index, opened.port) == ("worker", 0, 8888)
    (start,) = gateway.requests("ForwardPort")
    assert isinstance(start, job_service_pb2.ForwardPortStart)
    assert start.probe


@pytest.mark.parametrize(("passing", "kind"), [(False, Rejected), (True, ConnectionLost)])
def test_a_failed_connection_raises_its_reason_for_the_writer(
    gateway: GatewayDouble, address: str, passing: bool, kind: type[MusterError]
) -> None:
    gateway.forward_fails = job_service_pb2.ForwardPortFailed(message="connection refused", retryable=passing)
    with Client(address) as client, client.connect("demo") as connection:
        for _ in range(20):
            connection.write(b"hello?" * 1000)
        with pytest.raises(kind, match="connection refused"):
            connection.read()


async def test_a_failed_connection_raises_its_reason_for_a_loop_of_writes(
    gateway: GatewayDouble, address: str
) -> None:
    gateway.forward_fails = job_service_pb2.ForwardPortFailed(message="connection refused")
    async with AsyncClient(address) as client:
        for _ in range(20):
            async with await client.connect("demo") as connection:
                for _ in range(20):
                    await connection.write(b"hello?" * 1000)
                with pytest.raises(Rejected, match="connection refused"):
                    await connection.read()
