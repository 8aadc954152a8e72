"""Webhooks end to end: a status-tracker process, a real broker and a real receiver."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import runpy
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TypeVar

import pytest
import pytest_asyncio

from muster_bus import Bus, BusSettings, DeadLetters, ReplayFailed
from muster_core import events
from muster_core.models import Job, Reason, Role, Template
from muster_events.catalogue import GATEWAY, SCHEDULER, SPEC_VALIDATOR
from muster_events.codec import job_message
from muster_events.subjects import job_id_of
from muster_local import provision_bus
from muster_testing.broker import Broker
from muster_testing.conditions import answered, eventually
from muster_testing.webhook_receiver import HANG, WebhookReceiver

ROOT = Path(__file__).resolve().parents[3]
SECRET = "a secret of the tests"
T = TypeVar("T")


class StartFailed(Exception):
    def __init__(self, code: int | None) -> None:
        super().__init__(f"the process ended with {code}")
        self.code = code


class Jobs:
    """Publishes the events that other services would publish."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._steps = itertools.count(1)

    async def submit(self, name: str, *, queue: str = "", namespace: str = "default") -> str:
        job_id = job_id_of(name)
        await self._publish(job_id, events.JobSubmitted(job_id=job_id, request_id=name), GATEWAY)
        role = Role(name="worker", replicas=1, min=1, max=1, template=Template(command=("true",)))
        job = Job(name=name, roles=(role,), queue=queue, namespace=namespace)
        await self._publish(job_id, events.JobValidated(job=job), SPEC_VALIDATOR)
        return job_id

    async def place_and_evict(self, job_id: str, attempt: int) -> None:
        placed = events.JobPlaced(
            attempt=attempt,
            generation=1,
            pool="local",
            replicas=(events.Assignment(role="worker", index=0, node="n1"),),
        )
        await self._publish(job_id, placed, SCHEDULER)
        reason = Reason(code="Preempted", message="a job of higher priority")
        await self._publish(job_id, events.JobEvicted(attempt=attempt, reason=reason), SCHEDULER)

    async def cancel(self, job_id: str) -> None:
        request = f"cancel-{job_id}"
        command = events.CommandRequested(command=events.Command.CANCEL, request_id=request, by="ann")
        await self._publish(job_id, command, GATEWAY)

    async def _publish(self, job_id: str, event: events.JobEvent, source: str) -> None:
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        await self._bus.publish_once(
            job_message(job_id, event, source=source, traceparent=trace, after=next(self._steps))
        )


class TrackerProcess:
    """A status-tracker process that can be killed and restarted."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._broker = broker
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.lines: list[str] = []

    async def start(self, *receivers: dict[str, object]) -> None:
        file = self._folder / "webhooks.json"
        file.write_text(json.dumps({"receivers": receivers}))
        own = {name: v for name, v in os.environ.items() if not name.startswith(("MUSTER_", "OTEL_"))}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "muster_status_tracker",
            stderr=asyncio.subprocess.PIPE,
            env=own | {"MUSTER_BUS_URL": self._broker.url, "MUSTER_WEBHOOKS": str(file)},
        )
        ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(self._process, ready))
        async with asyncio.timeout(30):
            await asyncio.wait(
                [asyncio.ensure_future(ready.wait()), self._reading], return_when=asyncio.FIRST_COMPLETED
            )
            if not ready.is_set():
                raise StartFailed(await self._process.wait())

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def stop(self) -> int:
        assert self._process is not None
        self._process.terminate()
        async with asyncio.timeout(20):
            return await self._process.wait()

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.lines.append(line.decode())
            if b'"msg":"ready"' in line.replace(b": ", b":"):
                ready.set()


@pytest_asyncio.fixture
async def broker(tmp_path: Path) -> AsyncGenerator[Broker]:
    async with Broker(tmp_path / "broker") as running:
        await provision_bus(BusSettings(url=running.url))
        yield running


@pytest_asyncio.fixture
async def bus(broker: Broker) -> AsyncGenerator[Bus]:
    connected = await Bus.connect(BusSettings(url=broker.url), name="test")
    yield connected
    await connected.close()


@pytest_asyncio.fixture
async def tracker(broker: Broker, tmp_path: Path) -> AsyncGenerator[TrackerProcess]:
    running = TrackerProcess(broker, tmp_path)
    yield running
    await running.kill()


@pytest_asyncio.fixture
async def hook() -> AsyncGenerator[WebhookReceiver]:
    async with WebhookReceiver() as listening:
        yield listening


@pytest.fixture
def jobs(bus: Bus) -> Jobs:
    return Jobs(bus)


@pytest.fixture
def receiver(tmp_path: Path) -> Callable[..., dict[str, object]]:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")

    def describe(hook: WebhookReceiver, name: str = "ci", **more: object) -> dict[str, object]:
        quick: dict[str, object] = {
            "firstPauseSeconds": 0.05,
            "longestPauseSeconds": 0.2,
            "timeoutSeconds": 5,
        }
        return {"name": name, "url": hook.url, "secretFile": str(secret)} | quick | more

    return describe


DescribeReceiver = Callable[..., dict[str, object]]


async def test_each_change_of_phase_is_posted_signed_as_a_cloud_event(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    await tracker.start(receiver(hook))
    job_id = await jobs.submit("demo", queue="team")
    await jobs.cancel(job_id)
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued", "Cancelled"])

    last = hook.taken()[-1]
    event = json.loads(last.body)
    assert last.headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert (event["specversion"], event["source"], event["type"]) == (
        "1.0",
        "muster",
        "muster.v1.job.cancelled",
    )
    assert event["id"] == f"{job_id}/{int(event['sequence'])}"
    assert event["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-")
    assert (event["data"]["name"], event["data"]["queue"], event["data"]["previousPhase"]) == (
        "demo",
        "team",
        "Queued",
    )
    assert "ann" in event["data"]["reason"]["message"]
    example = runpy.run_path(str(ROOT / "examples" / "webhooks" / "receiver.py"))
    timestamp, signature = last.headers["muster-timestamp"], last.headers["muster-signature"]
    assert example["verify"](SECRET.encode(), timestamp, signature, last.body)
    assert not example["verify"](SECRET.encode(), timestamp, signature, last.body + b" ")
    assert not example["verify"](b"another secret!!", timestamp, signature, last.body)
    assert not example["verify"](SECRET.encode(), str(int(timestamp) - 3600), signature, last.body)


async def test_failed_and_timed_out_requests_are_retried_in_order(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    answers = itertools.chain([503, HANG, 302, 404], itertools.repeat(200))
    hook.answer = lambda _: next(answers)
    await tracker.start(receiver(hook, timeoutSeconds=0.3))
    job_id = await jobs.submit("demo")
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued"])

    assert [r.answer for r in hook.received] == [503, HANG, 302, 404, 200, 200]
    assert [r.headers["muster-try"] for r in hook.received] == ["1", "2", "3", "4", "5", "1"]
    assert len({r.id for r in hook.received}) == 2


async def test_an_undeliverable_notification_delays_only_its_job(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    stuck = job_id_of("stuck")
    hook.answer = lambda body: 500 if stuck.encode() in body else 200
    await tracker.start(receiver(hook, longestPauseSeconds=60, firstPauseSeconds=60))
    await jobs.submit("stuck")
    others = [await jobs.submit(f"demo-{number}") for number in range(20)]
    await eventually(lambda: all(hook.phases_of(job_id) == ["Submitted", "Queued"] for job_id in others))
    assert hook.phases_of(stuck) == []


async def test_undeliverable_notifications_are_dead_lettered_and_replayed(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver, bus: Bus
) -> None:
    hook.answer = lambda body: 422 if b'"phase":"Submitted"' in body else 500
    await tracker.start(receiver(hook, attempts=3))
    job_id = await jobs.submit("demo")
    dead_letters = DeadLetters(bus)

    async def two_dead_letters() -> list[int]:
        found = await dead_letters.list()
        return [dead_letter.sequence for dead_letter in found] if len(found) == 2 else []

    rejected, exhausted = await answered(two_dead_letters)
    assert [r.answer for r in hook.received] == [422, 500, 500, 500]
    dead_letter = await dead_letters.get(exhausted)
    assert dead_letter is not None
    assert (dead_letter.consumer, dead_letter.reason, dead_letter.delivered) == (
        "webhook-ci",
        "the receiver responded with 500",
        3,
    )

    with pytest.raises(ReplayFailed, match="the receiver responded with 422"):
        await dead_letters.replay(rejected)
    hook.answer = lambda _: 200
    await dead_letters.replay(rejected)
    await dead_letters.replay(exhausted)
    assert hook.phases_of(job_id) == ["Submitted", "Queued"]
    assert await dead_letters.list() == []


async def test_a_receiver_that_responds_with_410_gets_no_more_requests(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver, bus: Bus
) -> None:
    async with WebhookReceiver() as other:
        hook.answer = lambda _: 410
        await tracker.start(receiver(hook), receiver(other, "other"))
        first = await jobs.submit("first")
        await eventually(lambda: other.phases_of(first) == ["Submitted", "Queued"])
        second = await jobs.submit("second")
        await eventually(lambda: other.phases_of(second) == ["Submitted", "Queued"])
    assert [r.answer for r in hook.received] == [410]
    assert await DeadLetters(bus).list() == []
    assert any("gets no notifications" in line for line in tracker.lines)


async def test_a_receiver_gets_only_the_phases_it_subscribes_to(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    await tracker.start(receiver(hook, phases=["Queued", "Cancelled"], queues=["team"], namespaces=["ml"]))
    await jobs.submit("other-queue", namespace="ml")
    await jobs.submit("other-namespace", queue="team")
    wanted = await jobs.submit("wanted", queue="team", namespace="ml")
    await jobs.cancel(wanted)
    await eventually(lambda: hook.phases_of(wanted) == ["Queued", "Cancelled"])
    assert {r.job for r in hook.received} == {wanted}


async def test_a_new_receiver_starts_at_the_end_of_the_stream(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    await tracker.start()
    before = await jobs.submit("before")
    await tracker.stop()
    await tracker.start(receiver(hook))
    await jobs.cancel(before)
    await eventually(lambda: hook.phases_of(before) == ["Cancelled"])


async def test_repeated_kills_lose_nothing_and_keep_the_order_of_each_job(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    count, attempts = 6, 8
    ci = receiver(hook)
    await tracker.start(ci)
    ids = [await jobs.submit(f"demo-{number}") for number in range(count)]
    for attempt in range(1, attempts + 1):
        for job_id in ids:
            await jobs.place_and_evict(job_id, attempt)
        if attempt % 3 == 0:
            await tracker.kill()
            await tracker.start(ci)
    for job_id in ids:
        await jobs.cancel(job_id)
    expected = ["Submitted", "Queued", *["Placed", "Evicted"] * attempts, "Cancelled"]

    def new_phases_of(job_id: str) -> list[str]:
        """The phases as a receiver sees them that drops outdated notifications."""
        newest, phases = "", list[str]()
        for received in hook.taken():
            sequence = json.loads(received.body)["sequence"]
            if received.job == job_id and sequence > newest:
                newest = sequence
                phases.append(received.phase)
        return phases

    await eventually(lambda: all(new_phases_of(job_id) == expected for job_id in ids), timeout_s=60)


async def test_a_graceful_stop_repeats_nothing(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    ci = receiver(hook)
    await tracker.start(ci)
    job_id = await jobs.submit("demo")
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued"])
    assert await tracker.stop() == 0
    await jobs.place_and_evict(job_id, 1)
    await tracker.start(ci)
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued", "Placed", "Evicted"])
    assert len(hook.received) == 4


async def test_notifications_wait_for_an_unavailable_receiver(
    tracker: TrackerProcess, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    await tracker.start(receiver(hook, attempts=100))
    await hook.leave()
    job_id = await jobs.submit("demo")
    await eventually(lambda: any("webhook not delivered" in line for line in tracker.lines))
    await hook.listen()
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued"])


async def test_an_invalid_receivers_file_stops_the_start(
    tracker: TrackerProcess, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    with pytest.raises(StartFailed) as failure:
        await tracker.start(receiver(hook, url="ftp://ci.example.org"))
    assert failure.value.code == 2
    assert "receiver ci: url must start with http:// or https://" in "".join(tracker.lines)
