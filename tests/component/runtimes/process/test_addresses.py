"""Every replica has a port of its own for its job's life, whoever else draws."""

import asyncio
import socket
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from process_room import PATIENCE_S, Room, worker

from muster_runtimes.process import NoFreePortError, ProcessOptions

DRAW = Path(__file__).with_name("draw_ports.py")
GANG = [("ps", 0), ("worker", 0), ("worker", 1)]


async def drawn(
    room: Room, job_id: str = "job-1", options: ProcessOptions | None = None
) -> dict[tuple[str, int], str]:
    return dict(await room.runtime(options).addresses(job_id, GANG, job="mnist", namespace="default"))


async def test_addresses_are_loopback_ports_of_the_range(room: Room):
    addresses = await drawn(room)
    hosts, ports = zip(*(address.split(":") for address in addresses.values()), strict=True)

    assert list(addresses) == GANG
    assert set(hosts) == {"127.0.0.1"}
    assert len({int(port) for port in ports if 21000 <= int(port) <= 31999}) == 3


async def test_addresses_stay_for_the_jobs_life(room: Room):
    runtime = room.runtime()
    first = await runtime.addresses("job-1", GANG[:2], job="mnist", namespace="default")
    grown = await runtime.addresses("job-1", GANG, job="mnist", namespace="default")
    await room.leave(runtime)

    assert {key: grown[key] for key in first} == first
    assert await drawn(room) == grown


async def test_an_address_is_observed_with_its_replica(room: Room):
    runtime = room.runtime()
    seen = await runtime.start(room.launch(worker(), "sleep", "300"))
    assert seen.address == ""
    addresses = await runtime.addresses("job-1", GANG, job="mnist", namespace="default")
    [seen] = runtime.job_observations("job-1")

    assert seen.address == addresses["worker", 0]


async def test_a_port_that_is_in_use_is_passed_over(room: Room):
    wanted = (await drawn(room))["ps", 0]
    await room.runtime().forget("job-1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(wanted.split(":")[1])))
        taken.listen()
        addresses = await drawn(room)

    assert wanted not in addresses.values()
    assert len(set(addresses.values())) == 3


async def test_a_range_that_is_used_up_says_so(room: Room):
    options = ProcessOptions(first_port=21000, last_port=21001)
    with pytest.raises(NoFreePortError, match="no port left between 21000 and 21001"):
        await drawn(room, options=options)


async def test_a_forgotten_job_gives_its_ports_back(room: Room):
    await drawn(room, "job-1")
    kept = await drawn(room, "job-10")
    await room.runtime().forget("job-1")

    assert {entry.name for entry in room.layout.ports.iterdir()} == {
        address.split(":")[1] for address in kept.values()
    }


async def test_a_reservation_that_a_crash_kept_from_the_book_is_found_again(room: Room):
    before = await drawn(room)
    (room.layout.job("job-1") / "ports.json").unlink()

    assert await drawn(room) == before
    assert len(list(room.layout.ports.iterdir())) == 3


async def test_many_processes_draw_no_port_twice(room: Room):
    room.layout.prepare()
    jobs = [[f"job-{copy}-{number}" for number in range(3)] for copy in range(4)]
    copies = [
        await asyncio.create_subprocess_exec(sys.executable, str(DRAW), str(room.root), *job_ids, stdout=PIPE)
        for job_ids in jobs
    ]
    async with asyncio.timeout(PATIENCE_S):
        said = [(await copy.communicate())[0] for copy in copies]
    ports = b" ".join(said).split()

    assert len(ports) == len(set(ports)) == 120


async def test_two_copies_that_draw_for_one_job_agree(room: Room):
    first, second = room.runtime(), room.runtime()
    one, other = await asyncio.gather(
        *(runtime.addresses("job-1", GANG, job="mnist", namespace="default") for runtime in (first, second))
    )

    assert one == other
