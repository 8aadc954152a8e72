"""Every replica has its own port for the life of its job, also with several instances."""

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from runtime_harness import TIMEOUT_S, RuntimeHarness, worker

from muster_runtimes.process import NoFreePortError, ProcessOptions

ALLOCATE = Path(__file__).with_name("allocate_ports.py")
GANG = [("ps", 0), ("worker", 0), ("worker", 1)]


async def allocated(
    harness: RuntimeHarness, job_id: str = "job-1", options: ProcessOptions | None = None
) -> dict[tuple[str, int], str]:
    return dict(await harness.runtime(options).addresses(job_id, GANG, job="mnist", namespace="default"))


async def test_addresses_are_loopback_ports_of_the_range(harness: RuntimeHarness):
    addresses = await allocated(harness)
    hosts, ports = zip(*(address.split(":") for address in addresses.values()), strict=True)

    assert list(addresses) == GANG
    assert set(hosts) == {"127.0.0.1"}
    assert len({int(port) for port in ports if 21000 <= int(port) <= 31999}) == 3


async def test_addresses_stay_the_same_when_a_job_grows_and_pod_launcher_restarts(harness: RuntimeHarness):
    runtime = harness.runtime()
    first = await runtime.addresses("job-1", GANG[:2], job="mnist", namespace="default")
    grown = await runtime.addresses("job-1", GANG, job="mnist", namespace="default")
    await harness.leave(runtime)

    assert {key: grown[key] for key in first} == first
    assert await allocated(harness) == grown


async def test_an_allocated_address_appears_in_the_observation(harness: RuntimeHarness):
    runtime = harness.runtime()
    seen = await runtime.start(harness.launch(worker(), "sleep", "300"))
    assert seen.address == ""
    addresses = await runtime.addresses("job-1", GANG, job="mnist", namespace="default")
    [seen] = runtime.job_observations("job-1")

    assert seen.address == addresses["worker", 0]


async def test_a_port_in_use_is_skipped(harness: RuntimeHarness):
    wanted = (await allocated(harness))["ps", 0]
    await harness.runtime().forget("job-1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(wanted.split(":")[1])))
        taken.listen()
        addresses = await allocated(harness)

    assert wanted not in addresses.values()
    assert len(set(addresses.values())) == 3


async def test_an_exhausted_range_raises_an_error(harness: RuntimeHarness):
    options = ProcessOptions(first_port=21000, last_port=21001)
    with pytest.raises(NoFreePortError, match="no free port between 21000 and 21001"):
        await allocated(harness, options=options)


async def test_forget_releases_the_ports_of_a_job(harness: RuntimeHarness):
    await allocated(harness, "job-1")
    kept = await allocated(harness, "job-10")
    await harness.runtime().forget("job-1")

    assert {entry.name for entry in harness.directory.ports.iterdir()} == {
        address.split(":")[1] for address in kept.values()
    }


async def test_a_reservation_is_found_again_after_a_crash_before_it_was_listed(harness: RuntimeHarness):
    before = await allocated(harness)
    (harness.directory.job("job-1") / "ports.json").unlink()

    assert await allocated(harness) == before
    assert len(list(harness.directory.ports.iterdir())) == 3


async def test_concurrent_processes_never_allocate_the_same_port(harness: RuntimeHarness):
    harness.directory.prepare()
    jobs = [[f"job-{copy}-{number}" for number in range(3)] for copy in range(4)]
    copies = [
        await asyncio.create_subprocess_exec(
            sys.executable, str(ALLOCATE), str(harness.root), *job_ids, stdout=PIPE
        )
        for job_ids in jobs
    ]
    async with asyncio.timeout(TIMEOUT_S):
        outputs = [(await copy.communicate())[0] for copy in copies]
    ports = b" ".join(outputs).split()

    assert len(ports) == len(set(ports)) == 120


async def test_two_instances_allocate_the_same_ports_for_one_job(harness: RuntimeHarness):
    first, second = harness.runtime(), harness.runtime()
    one, other = await asyncio.gather(
        *(runtime.addresses("job-1", GANG, job="mnist", namespace="default") for runtime in (first, second))
    )

    assert one == other
