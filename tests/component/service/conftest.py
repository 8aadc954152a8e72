"""An OTLP receiver and echo services that report to it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from muster_service.grpc_client import channel
from muster_service.grpc_server import GrpcHost
from muster_service.metrics import Metrics
from muster_service.tracing import Telemetry
from muster_testing.echo import Echo, EchoClient, EchoServer, Serve, add_echo
from muster_testing.otlp import OtlpReceiver


@pytest.fixture
async def receiver() -> AsyncIterator[OtlpReceiver]:
    async with OtlpReceiver() as running:
        yield running


@pytest.fixture
async def serve(receiver: OtlpReceiver) -> AsyncIterator[Serve]:
    async with AsyncExitStack() as stack:

        async def start(
            *,
            address: str = "127.0.0.1:0",
            default_timeout_s: float = 10.0,
            stream_timeout_s: float | None = None,
            client_timeout_s: float = 10.0,
            connection_s: float = 300.0,
        ) -> EchoServer:
            echo = Echo()
            metrics = Metrics(process=False)
            telemetry = Telemetry.start("echo", "echo-0", receiver.endpoint)
            host = GrpcHost(
                address=address,
                services=[(add_echo, echo)],
                telemetry=telemetry,
                metrics=metrics,
                default_timeout_s=default_timeout_s,
                stream_timeout_s=stream_timeout_s,
                connection_s=connection_s,
            )
            await host.start()
            target = channel(host.address, default_timeout_s=client_timeout_s)
            stack.callback(telemetry.shutdown)
            stack.push_async_callback(host.stop, 0)
            stack.push_async_callback(target.close)
            return EchoServer(echo, host, metrics, EchoClient(target))

        yield start
