"""``muster doctor`` finds nothing in a system that works, and every real fault that is planted in it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import msgspec
from harness import Connect, Launcher

from muster_bus import Bus, BusSettings, DeadLetters, Outgoing
from muster_events.catalogue import DEAD_STREAM, GATEWAY, JOBS_STREAM, SERVICES, SPEC_VALIDATOR
from muster_events.subjects import job_id_of, job_subject
from muster_local import LocalSystem
from muster_rpc.v1 import cluster_service_pb2
from muster_testing.doctor import MUSTER, DoctorResult, run_doctor

WAIT_S = 60


class Described(msgspec.Struct, frozen=True):
    """The configuration of a stream."""

    config: dict[str, object] = {}


async def until_found(system: LocalSystem, expected: Mapping[str, str]) -> list[DoctorResult]:
    """Return the results once there is a message with each of the texts, by check, and no result of other checks."""
    results: list[DoctorResult] = []

    def found() -> bool:
        return {each.check for each in results} == set(expected) and all(
            any(each.check == check and text in each.message for each in results)
            for check, text in expected.items()
        )

    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                code, results = await run_doctor(system.address)
                assert code == any(each.status == "CHECK_STATUS_ERROR" for each in results)
                if found():
                    return results
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise AssertionError(f"{dict(expected)} not found: {results}") from None


@asynccontextmanager
async def connected(system: LocalSystem) -> AsyncGenerator[Bus]:
    bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
    try:
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def paused(system: LocalSystem, *services: str) -> AsyncGenerator[None]:
    """Pause services, which then look like hanging ones."""
    pids = [system.services[name] for name in services]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def ask(bus: Bus, subject: str, payload: object = None) -> dict[str, object]:
    """Return the configuration in an answer of the broker."""
    data = b"" if payload is None else msgspec.json.encode(payload)
    answer = (await bus.request(f"$JS.API.{subject}", data)).data
    assert b'"error"' not in answer, answer
    return msgspec.json.decode(answer, type=Described).config


async def test_a_system_that_works_has_no_fault(launch: Launcher, connect: Connect) -> None:
    async with launch(instances={"scheduler": 2, "status-tracker": 2}) as system, connect(system) as muster:
        async with asyncio.timeout(WAIT_S):
            # A check that could not be made yet is none of those that found nothing.
            results = (await muster.diagnose()).results
            while any(each.status != cluster_service_pb2.CHECK_STATUS_OK for each in results):
                await asyncio.sleep(0.5)
                results = (await muster.diagnose()).results
        assert len({each.check for each in results}) == 11
        broker = next(each.message for each in results if each.check == "broker")
        assert "1 server, JetStream with sync_interval: always" in broker
        assert next(each.message for each in results if each.check == "services").startswith("8 instances")


async def test_every_planted_fault_is_found_and_gone_after_its_fix(launch: Launcher) -> None:
    async with launch() as system, connected(system) as bus:
        await until_found(system, {})

        # A changed limit.
        config = await ask(bus, f"STREAM.INFO.{JOBS_STREAM}")
        await ask(bus, f"STREAM.UPDATE.{JOBS_STREAM}", {**config, "max_age": 3_600_000_000_000})
        await until_found(system, {"streams": "stream JOBS: max_age is 3600 s instead of"})
        await ask(bus, f"STREAM.UPDATE.{JOBS_STREAM}", config)
        await until_found(system, {})

        # A consumer that is deleted while its service hangs: the service would create it again.
        async with paused(system, SPEC_VALIDATOR):
            await ask(bus, f"CONSUMER.DELETE.{JOBS_STREAM}.{SPEC_VALIDATOR}")
            await until_found(
                system,
                {
                    "services": "no instance of spec-validator answers on the bus",
                    "consumers": "the consumer spec-validator of JOBS does not exist",
                },
            )
        await until_found(system, {})

        # Leaders that hang, until their leases have ended.
        async with paused(system, "scheduler", "scaler"):
            results = await until_found(
                system,
                {
                    "services": "no instance of scheduler answers on the bus",
                    "leaders": "no scheduler leads the pool local, so nothing is placed",
                },
            )
            assert any("no scaler leads" in each.message for each in results)
        await until_found(system, {})

        # Owners of partitions that hang.
        async with paused(system, "status-tracker", "pod-launcher"):
            await until_found(
                system,
                {
                    "services": "no instance of pod-launcher answers on the bus",
                    "partitions": "no instance of status-tracker owns the partitions 0 to 3",
                    "runtime": "pod-launcher did not answer",
                },
            )
        await until_found(system, {})

        # A dead letter; last, because a consumer that is created again reads the message again.
        subject = job_subject(job_id_of("unreadable"), "JobSubmitted")
        published = await bus.publish(Outgoing(subject=subject, data=b"{", msg_id="unreadable"))
        assert published.sequence
        dead = await until_found(system, {"dead letters": "dead letter"})
        assert all(each.fix.startswith("muster dead-letters list") for each in dead)
        await discard_dead_letters(bus)
        await until_found(system, {})


async def discard_dead_letters(bus: Bus) -> None:
    """Discard a submission's dead letters once each service that reads it has set it aside, some later than others."""
    dead_letters = DeadLetters(bus, DEAD_STREAM)
    readers = [service for service in SERVICES if service != GATEWAY]
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await dead_letters.list()
            if all(any(each.consumer.startswith(reader) for each in found) for reader in readers):
                break
            await asyncio.sleep(0.2)
    for each in found:
        await dead_letters.discard(each.sequence)


async def test_a_gateway_that_is_stopped_is_an_error(launch: Launcher) -> None:
    async with launch() as system:
        address = system.address
    process = await asyncio.create_subprocess_exec(
        MUSTER, "--server", address, "--timeout", "1", "doctor",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 1
    assert output.decode().splitlines()[0].startswith("error    gateway  cannot reach Muster at")
