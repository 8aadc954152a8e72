"""A service as a process: what it says when it is ready, how it ends, and with which code."""

import asyncio
import json
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from grpc import aio

from muster_testing.echo import EchoClient
from muster_testing.otlp import OtlpReceiver

PROGRAM = Path(__file__).with_name("demo_service.py")
LIMIT_S = 30.0


class Process:
    """The demo service, and its lines on stderr so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, object]] = []

    async def says(self, message: str) -> dict[str, object]:
        """Return the log line with this message, as soon as there is one."""
        assert self.process.stderr
        async with asyncio.timeout(LIMIT_S):
            while line := await self.process.stderr.readline():
                self.lines.append(json.loads(line))
                if self.lines[-1]["msg"] == message:
                    return self.lines[-1]
        raise AssertionError(f"it ended without {message!r}: {self.lines}")

    def signal(self, signum: signal.Signals) -> None:
        self.process.send_signal(signum)

    async def ends(self) -> tuple[int, str]:
        """Return its exit code and what else it wrote."""
        async with asyncio.timeout(LIMIT_S):
            _, rest = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, rest.decode()


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[Process] = []

    async def run(*arguments: str, **env_variables: str) -> Process:
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROGRAM),
            *arguments,
            env=environ | {f"MUSTER_{name}": value for name, value in env_variables.items()},
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        started.append(Process(process))
        return started[-1]

    yield run
    for running in started:
        if running.process.returncode is None:
            running.process.kill()
            await running.process.communicate()


def messages(rest: str) -> list[str]:
    return [json.loads(line)["msg"] for line in rest.splitlines()]


def wait(channel: aio.Channel, seconds: bytes) -> aio.UnaryUnaryCall[bytes, bytes]:
    call: aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/test.Slow/Wait")
    return call(seconds)


async def get(address: str, path: str) -> tuple[int, str]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    head, _, body = (await asyncio.wait_for(reader.read(), 5)).decode().partition("\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


async def test_it_prints_its_address_and_exits_with_0_on_sigterm(start: Start):
    service = await start()
    ready = await service.says("ready")

    async with aio.insecure_channel(str(ready["grpc"])) as channel:
        assert await EchoClient(channel).health("test.Slow") == "SERVING"
    assert await get(str(ready["metrics"]), "/readyz") == (200, "ready\n")
    status, page = await get(str(ready["metrics"]), "/metrics")
    assert (status, "process_cpu_seconds_total" in page) == (200, True)

    service.signal(signal.SIGTERM)

    code, rest = await service.ends()
    assert code == 0
    assert messages(rest) == [
        "stopping",
        "draining",
        "worker ended",
        "closing last opened",
        "closing first opened",
        "stopped",
    ]


async def test_it_is_ready_only_when_all_of_its_parts_are(start: Start):
    service = await start(DEMO_MODE="late")

    await service.says("ready")

    assert [line["msg"] for line in service.lines] == ["not yet", "ready"]


async def test_the_ready_line_does_not_depend_on_the_log_level(start: Start):
    service = await start(LOG_LEVEL="error", DEMO_MODE="late")

    ready = await service.says("ready")

    assert [line["msg"] for line in service.lines] == ["ready"]
    assert (ready["level"], "metrics" in ready) == ("info", True)


async def test_a_running_call_is_answered_before_the_end(start: Start):
    service = await start()
    ready = await service.says("ready")
    async with aio.insecure_channel(str(ready["grpc"])) as channel:
        call = wait(channel, b"0.5")
        await service.says("waiting")

        service.signal(signal.SIGTERM)

        assert await call == b"waited"
    assert (await service.ends())[0] == 0


async def test_a_drain_is_bounded(start: Start):
    service = await start(DEMO_MODE="hang-in-drain", DRAIN_SECONDS="500ms")
    await service.says("ready")

    service.signal(signal.SIGTERM)

    code, rest = await service.ends()
    assert code == 0
    assert "the drain took too long and was cut short" in messages(rest)
    assert "closing first opened" in messages(rest)


async def test_a_second_signal_ends_it_at_once(start: Start):
    service = await start(DEMO_MODE="hang-in-drain", DRAIN_SECONDS="10m")
    await service.says("ready")
    service.signal(signal.SIGTERM)
    await service.says("draining")

    service.signal(signal.SIGINT)

    assert (await service.ends())[0] == 128 + signal.SIGINT


async def test_a_part_that_crashes_ends_the_process(start: Start):
    service = await start(DEMO_MODE="crash")

    line = await service.says("a part crashed; the process ends")
    code, rest = await service.ends()

    assert (line["level"], line["part"]) == ("critical", "worker")
    assert "RuntimeError: worker broke" in str(line["exception"])
    assert code == 1
    assert "closing first opened" in messages(rest)


async def test_a_part_may_come_to_its_end(start: Start):
    service = await start(DEMO_MODE="return")
    await service.says("ready")

    service.signal(signal.SIGTERM)

    assert (await service.ends())[0] == 0


async def test_a_failed_build_is_reported(start: Start):
    service = await start(DEMO_MODE="crash-in-build")

    line = await service.says("a part failed; the process ends")

    assert "RuntimeError: build broke" in str(line["exception"])
    assert (await service.ends())[0] == 1


async def test_a_service_can_be_stopped_while_it_is_built(start: Start):
    service = await start(DEMO_MODE="hang-in-build")
    await service.says("building")

    service.signal(signal.SIGTERM)

    assert (await service.ends())[0] == 0


async def test_an_address_in_use_is_reported(start: Start):
    first = await (await start()).says("ready")

    second = await start(METRICS_ADDRESS=str(first["metrics"]))

    line = await second.says("a part failed; the process ends")
    assert "address already in use" in str(line["exception"])
    assert (await second.ends())[0] == 1


async def test_bad_settings_are_refused_with_code_2_before_anything_else(start: Start):
    service = await start(DEMO_MODE="wild", DRAIN_SECONDS="soon")

    assert await service.ends() == (
        2,
        "demo: 2 settings cannot be used:\n"
        "  MUSTER_DRAIN_SECONDS='soon': must be a duration such as 500ms, 30s or 5m\n"
        "  MUSTER_DEMO_MODE='wild': must be one of plain, late, crash, crash-in-build, hang-in-build, "
        "hang-in-drain, return, cycle\n",
    )


async def test_a_misspelt_setting_is_warned_of(start: Start):
    service = await start(DEMO_MOOD="plain")

    await service.says("MUSTER_DEMO_MOOD is not a setting and was ignored; did you mean MUSTER_DEMO_MODE?")


async def test_help_lists_the_settings(start: Start):
    service = await start("--help")

    out, _ = await asyncio.wait_for(service.process.communicate(), LIMIT_S)

    assert service.process.returncode == 0
    assert "MUSTER_DEMO_MODE" in out.decode()


async def test_its_last_spans_are_sent_before_it_ends(start: Start, receiver: OtlpReceiver):
    service = await start(OTLP_ENDPOINT=receiver.endpoint)
    ready = await service.says("ready")
    async with aio.insecure_channel(str(ready["grpc"])) as channel:
        call = wait(channel, b"0.2")
        await service.says("waiting")
        service.signal(signal.SIGTERM)
        assert await call == b"waited"
    assert (await service.ends())[0] == 0

    assert [(span.name, span.service) for span in receiver.spans()] == [("Wait", "demo")]


async def test_a_process_without_free_descriptors_is_not_ready_and_says_so(start: Start):
    service = await start()
    ready = await service.says("ready")
    pid = service.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir())

    async def page_with(status: int) -> str:
        async with asyncio.timeout(20):
            while True:
                answer = await get(str(ready["metrics"]), "/readyz")
                if answer[0] == status:
                    return answer[1]
                await asyncio.sleep(0.1)

    resource.prlimit(pid, resource.RLIMIT_NOFILE, (highest + 3, before[1]))
    assert "descriptors" in await page_with(503)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    assert await page_with(200) == "ready\n"


async def test_garbage_is_collected_although_nothing_happens(start: Start) -> None:
    process = await start(DEMO_MODE="cycle")
    await process.says("collected")
    process.signal(signal.SIGTERM)
    assert (await process.ends())[0] == 0
