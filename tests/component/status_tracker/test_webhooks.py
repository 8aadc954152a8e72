"""Webhooks end to end: a status-tracker process, a real broker and a real receiver."""

from __future__ import annotations

import itertools
import json
import runpy
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

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
from muster_testing.service_process import ServiceProcess
from muster_testing.webhook_receiver import HANG, WebhookReceiver

ROOT = Path(__file__).resolve().parents[3]
SECRET = "a secret of the tests"
StartTracker = Callable[..., Awaitable[ServiceProcess]]


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
async def start_tracker(broker: Broker, tmp_path: Path) -> AsyncGenerator[StartTracker]:
    file = tmp_path / "webhooks.json"
    async with AsyncExitStack() as processes:

        async def start(*receivers: dict[str, object]) -> ServiceProcess:
            file.write_text(json.dumps({"receivers": receivers}))
            tracker = await processes.enter_async_context(
                ServiceProcess.running(
                    "-m", "muster_status_tracker", MUSTER_BUS_URL=broker.url, MUSTER_WEBHOOKS=str(file)
                )
            )
            await tracker.logged("ready")
            return tracker

        yield start


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
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    await start_tracker(receiver(hook))
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
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    answers = itertools.chain([503, HANG, 302, 404], itertools.repeat(200))
    hook.answer = lambda _: next(answers)
    await start_tracker(receiver(hook, timeoutSeconds=0.3))
    job_id = await jobs.submit("demo")
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued"])

    assert [r.answer for r in hook.received] == [503, HANG, 302, 404, 200, 200]
    assert [r.headers["muster-try"] for r in hook.received] == ["1", "2", "3", "4", "5", "1"]
    assert len({r.id for r in hook.received}) == 2


async def test_an_undeliverable_notification_delays_only_its_job(
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    stuck = job_id_of("stuck")
    hook.answer = lambda body: 500 if stuck.encode() in body else 200
    await start_tracker(receiver(hook, longestPauseSeconds=60, firstPauseSeconds=60))
    await jobs.submit("stuck")
    others = [await jobs.submit(f"demo-{number}") for number in range(20)]
    await eventually(lambda: all(hook.phases_of(job_id) == ["Submitted", "Queued"] for job_id in others))
    assert hook.phases_of(stuck) == []


async def test_undeliverable_notifications_are_dead_lettered_and_replayed(
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver, bus: Bus
) -> None:
    hook.answer = lambda body: 422 if b'"phase":"Submitted"' in body else 500
    await start_tracker(receiver(hook, attempts=3))
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
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver, bus: Bus
) -> None:
    async with WebhookReceiver() as other:
        hook.answer = lambda _: 410
        tracker = await start_tracker(receiver(hook), receiver(other, "other"))
        first = await jobs.submit("first")
        await eventually(lambda: other.phases_of(first) == ["Submitted", "Queued"])
        second = await jobs.submit("second")
        await eventually(lambda: other.phases_of(second) == ["Submitted", "Queued"])
    assert [r.answer for r in hook.received] == [410]
    assert await DeadLetters(bus).list() == []
    assert any("gets no notifications" in line["msg"] for line in tracker.log)


async def test_a_receiver_gets_only_the_phases_it_subscribes_to(
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    await start_tracker(receiver(hook, phases=["Queued", "Cancelled"], queues=["team"], namespaces=["ml"]))
    await jobs.submit("other-queue", namespace="ml")
    await jobs.submit("other-namespace", queue="team")
    wanted = await jobs.submit("wanted", queue="team", namespace="ml")
    await jobs.cancel(wanted)
    await eventually(lambda: hook.phases_of(wanted) == ["Queued", "Cancelled"])
    assert {r.job for r in hook.received} == {wanted}


async def test_a_new_receiver_starts_at_the_end_of_the_stream(
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    tracker = await start_tracker()
    before = await jobs.submit("before")
    await tracker.stop()
    await start_tracker(receiver(hook))
    await jobs.cancel(before)
    await eventually(lambda: hook.phases_of(before) == ["Cancelled"])


async def test_repeated_kills_lose_nothing_and_keep_the_order_of_each_job(
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    count, attempts = 6, 8
    ci = receiver(hook)
    tracker = await start_tracker(ci)
    ids = [await jobs.submit(f"demo-{number}") for number in range(count)]
    for attempt in range(1, attempts + 1):
        for job_id in ids:
            await jobs.place_and_evict(job_id, attempt)
        if attempt % 3 == 0:
            tracker.process.kill()
            await tracker.process.wait()
            tracker = await start_tracker(ci)
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
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    ci = receiver(hook)
    tracker = await start_tracker(ci)
    job_id = await jobs.submit("demo")
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued"])
    assert await tracker.stop() == 0
    await jobs.place_and_evict(job_id, 1)
    await start_tracker(ci)
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued", "Placed", "Evicted"])
    assert len(hook.received) == 4


async def test_notifications_wait_for_an_unavailable_receiver(
    start_tracker: StartTracker, jobs: Jobs, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    tracker = await start_tracker(receiver(hook, attempts=100))
    await hook.leave()
    job_id = await jobs.submit("demo")
    await eventually(lambda: any("webhook not delivered" in line["msg"] for line in tracker.log))
    await hook.listen()
    await eventually(lambda: hook.phases_of(job_id) == ["Submitted", "Queued"])


async def test_an_invalid_receivers_file_stops_the_start(
    start_tracker: StartTracker, hook: WebhookReceiver, receiver: DescribeReceiver
) -> None:
    problem = "ended with 2 .*receiver ci: url must start with http:// or https://"
    with pytest.raises(AssertionError, match=f"(?s){problem}"):
        await start_tracker(receiver(hook, url="ftp://ci.example.org"))
