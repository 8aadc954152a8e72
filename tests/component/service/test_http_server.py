"""The tiny HTTP server, asked as Prometheus, a kubelet and a stranger would."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator

import pytest

from muster_bus.prometheus import PrometheusBusMetrics
from muster_service.http_server import HttpServer, Request, Response
from muster_service.metrics import Exposition, Metrics
from muster_service.readiness import Readiness


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(process=False)


@pytest.fixture
def readiness() -> Readiness:
    return Readiness()


@pytest.fixture
async def server(metrics: Metrics, readiness: Readiness) -> AsyncIterator[HttpServer]:
    running = HttpServer(host="127.0.0.1", port=0, handler=Exposition(metrics, readiness))
    await running.start()
    yield running
    await running.stop()


async def get(server: HttpServer, path: str) -> tuple[int, str]:
    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


async def send(server: HttpServer, raw: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(raw)
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return answer


async def test_metrics_are_exposed(server: HttpServer, metrics: Metrics):
    metrics.counter("muster_things", "things", ("kind",)).labels("big").inc()

    status, page = await get(server, "/metrics")

    assert status == 200
    assert 'muster_things_total{kind="big"} 1.0' in page


async def test_health_is_not_readiness(server: HttpServer, readiness: Readiness):
    readiness.set("bus", False)

    assert await get(server, "/healthz") == (200, "ok\n")
    assert await get(server, "/readyz") == (503, "waiting for bus\n")
    readiness.set("bus", True)
    assert await get(server, "/readyz") == (200, "ready\n")


async def test_other_pages_are_not_found(server: HttpServer):
    assert (await get(server, "/"))[0] == 404


async def test_head_has_no_body(server: HttpServer):
    answer = await send(server, b"HEAD /healthz HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"\xff\xfe\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", b"400"),
    ],
)
async def test_what_it_does_not_understand_it_refuses(server: HttpServer, raw: bytes, status: bytes):
    assert (await send(server, raw)).split()[1] == status


async def test_a_failing_handler_is_an_internal_error():
    async def fail(request: Request) -> Response:
        raise RuntimeError("an internal detail")

    server = HttpServer(host="127.0.0.1", port=0, handler=fail)
    await server.start()
    try:
        assert await get(server, "/") == (500, "internal error\n")
    finally:
        await server.stop()


async def test_the_bus_is_counted(server: HttpServer, metrics: Metrics):
    bus = PrometheusBusMetrics(metrics)
    bus.keeps(["JOBS"], ["scheduler"])
    bus.published("JOBS", 3, 0.002)
    bus.redelivered("scheduler")
    bus.dead_lettered("scheduler")
    bus.pending("scheduler", 7)
    bus.pending("lost", 1)
    bus.stopped_reading("lost")
    bus.stream_state("DEAD", 2, 2048, 4096)
    bus.candidate("scheduler.local", lambda: True)
    bus.partitions("status-tracker", 3, 16)
    bus.is_connected(lambda: True)
    bus.reconnected()
    bus.refused()

    _, page = await get(server, "/metrics")

    for line in (
        'muster_bus_published_total{stream="JOBS"} 3.0',
        'muster_bus_publish_duration_seconds_count{stream="JOBS"} 1.0',
        'muster_bus_redelivered_total{consumer="scheduler"} 1.0',
        'muster_bus_dead_lettered_total{consumer="scheduler"} 1.0',
        'muster_bus_pending_messages{consumer="scheduler"} 7.0',
        'muster_bus_unreadable_total{stream="JOBS"} 0.0',
        'muster_bus_restored_total{name="consumer scheduler"} 0.0',
        'muster_stream_bytes{stream="DEAD"} 2048.0',
        'muster_stream_limit_bytes{stream="DEAD"} 4096.0',
        'muster_dead_letters{stream="DEAD"} 2.0',
        'muster_leader{lease="scheduler",pool="local"} 1.0',
        'muster_elections_total{lease="scheduler",pool="local"} 0.0',
        'muster_partitions_owned{group="status-tracker"} 3.0',
        'muster_membership_lapses_total{group="status-tracker"} 0.0',
        "muster_bus_connected 1.0",
        "muster_bus_reconnected_total 1.0",
        "muster_bus_refused_total 1.0",
    ):
        assert line in page
    assert 'consumer="lost"' not in page
    assert "_created" not in page


def test_a_name_belongs_to_one_kind_of_metric(metrics: Metrics):
    assert metrics.counter("muster_a", "a") is metrics.counter("muster_a", "a")

    with pytest.raises(TypeError, match="muster_a is a Counter, not a Gauge"):
        metrics.gauge("muster_a", "a")


async def test_thousands_of_silent_connections_neither_stay_nor_keep_others_from_the_pages(
    server: HttpServer,
) -> None:
    silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(1000)]
    try:
        assert (await get(server, "/healthz"))[0] == 200
        # The oldest were closed for newer ones.
        first = [reader.read() for reader, _ in silent[:700]]
        async with asyncio.timeout(3):
            assert not any(await asyncio.gather(*first))
    finally:
        for _, writer in silent:
            writer.transport.abort()
