import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from local_fakes import LogRecorder, fake_service

from muster_bus import Bus, BusSettings
from muster_events.catalogue import JOBS_STREAM, STREAMS
from muster_events.subjects import JOB_EVENTS
from muster_local.directory import DirectoryInUse, start_ticks
from muster_local.endpoints import Endpoints, read_endpoints
from muster_local.processes import ProgramFailed
from muster_local.programs import SERVICES, ExternalBroker, LocalOptions
from muster_local.system import LocalSystem
from muster_testing.broker import Broker
from muster_testing.conditions import eventually

Command = Callable[[str], tuple[str, ...]]


def endpoints_of(data: Path) -> Endpoints:
    endpoints = read_endpoints(data / "endpoints.json")
    assert endpoints is not None
    return endpoints


async def test_a_ready_system_has_all_services_streams_and_endpoints(
    tmp_path: Path, fake_command: Command
) -> None:
    async with LocalSystem(tmp_path, command=fake_command) as system:
        assert tuple(system.services) == SERVICES
        endpoints = endpoints_of(tmp_path)
        assert endpoints.pid == os.getpid()
        assert endpoints.gateway == system.address
        assert {name: service.pid for name, service in endpoints.services.items()} == system.services
        bus = await Bus.connect(BusSettings(url=system.bus_url), name="test")
        for stream in STREAMS:
            # A missing stream raises; only probes are stored.
            await bus.last_sequence(stream.name)
        assert await bus.last(JOBS_STREAM, JOB_EVENTS) is None
        await bus.close()
        pids = [*system.services.values(), endpoints.broker_pid or 0, endpoints.sink_pid or 0]
        assert all(map(start_ticks, pids))
    assert not any(map(start_ticks, pids))
    assert read_endpoints(tmp_path / "endpoints.json") is None


async def test_a_system_with_a_broker_elsewhere_provisions_it_and_runs_none(
    tmp_path: Path, fake_command: Command
) -> None:
    async with Broker(tmp_path / "broker") as broker:
        options = LocalOptions(broker=ExternalBroker(url=broker.url, store_bytes=1 << 30))
        async with LocalSystem(tmp_path / "data", options, command=fake_command) as system:
            endpoints = endpoints_of(tmp_path / "data")
            assert (system.bus_url, endpoints.bus_url, endpoints.broker_pid) == (broker.url, broker.url, None)
            bus = await Bus.connect(BusSettings(url=broker.url), name="test")
            for stream in STREAMS:
                # A missing stream raises; only probes are stored.
                await bus.last_sequence(stream.name)
            await bus.close()
            assert set(system.kill_all()) == set(SERVICES)
        assert start_ticks(broker.pid)


async def test_services_stop_first_and_the_broker_last(
    tmp_path: Path, fake_command: Command, log: LogRecorder
) -> None:
    async with LocalSystem(tmp_path, command=fake_command, listener=log.record):
        log.lines.clear()
    ends = [
        line.source
        for line in log.lines
        if line.message == "drained" or (line.source == "broker" and "Exiting" in line.message)
    ]
    assert set(ends[:6]) == set(SERVICES)
    assert ends[6:] == ["sink", "broker"]


async def test_a_restart_keeps_addresses_and_events(tmp_path: Path, fake_command: Command) -> None:
    system = LocalSystem(tmp_path, command=fake_command)
    await system.start()
    address, url, metrics = system.address, system.bus_url, system.metrics
    await system.stop()
    await system.stop()
    async with system:
        assert (system.address, system.bus_url, system.metrics) == (address, url, metrics)


async def test_a_killed_service_restarts_at_the_same_address(
    tmp_path: Path, fake_command: Command, log: LogRecorder
) -> None:
    async with LocalSystem(tmp_path, command=fake_command, listener=log.record) as system:
        killed = system.kill("scheduler")
        await system.wait_ready()
        assert system.services["scheduler"] != killed
        assert endpoints_of(tmp_path).services["scheduler"].pid == system.services["scheduler"]
        first, second = log.matching("scheduler", "ready")
        assert first.fields["address"] == second.fields["address"]
        assert "scheduler was killed by SIGKILL" in system.log_text()


async def test_all_programs_restart_after_a_kill_of_all(tmp_path: Path, fake_command: Command) -> None:
    async with LocalSystem(tmp_path, command=fake_command) as system:
        url = system.bus_url
        killed = system.kill_all()
        assert set(killed) == {*SERVICES, "broker"}
        await system.wait_ready()
        assert system.bus_url == url
        assert not set(system.services.values()) & set(killed.values())
        bus = await Bus.connect(BusSettings(url=url), name="test")
        assert await bus.last(JOBS_STREAM, JOB_EVENTS) is None
        await bus.close()


async def test_every_instance_has_its_own_addresses(tmp_path: Path, fake_command: Command) -> None:
    options = LocalOptions(instances={"scheduler": 2, "gateway": 2})
    async with LocalSystem(tmp_path, options, command=fake_command) as system:
        assert {"scheduler", "scheduler-2", "gateway-2"} < set(system.services)
        places = [service.grpc for service in endpoints_of(tmp_path).services.values()]
        assert len(set(places)) == len(places) == 8


async def test_a_service_that_refuses_its_settings_ends_the_start(
    tmp_path: Path, fake_command: Command
) -> None:
    def command(module: str) -> tuple[str, ...]:
        return fake_service("refuse") if module == "muster_scaler" else fake_command(module)

    with pytest.raises(ProgramFailed, match="scaler cannot start"):
        async with LocalSystem(tmp_path, command=command):
            raise AssertionError("it started")
    async with LocalSystem(tmp_path, command=fake_command):
        pass


async def test_a_second_system_with_the_same_directory_is_refused(
    tmp_path: Path, fake_command: Command
) -> None:
    async with LocalSystem(tmp_path, command=fake_command) as system:
        other = LocalSystem(tmp_path, command=fake_command)
        with pytest.raises(DirectoryInUse, match=f"pid {os.getpid()}"):
            await other.start()
        await other.stop()
        with pytest.raises(DirectoryInUse):
            await other.wipe()
        assert endpoints_of(tmp_path).services["gateway"].pid == system.services["gateway"]


async def test_a_wipe_removes_events_and_keeps_ports(tmp_path: Path, fake_command: Command) -> None:
    async with LocalSystem(tmp_path, command=fake_command) as system:
        address = system.address
    assert (tmp_path / "broker" / "store").exists()
    assert await system.wipe() == 0
    assert not (tmp_path / "broker" / "store").exists()
    async with system:
        assert system.address == address


async def test_kill_now_leaves_no_process(tmp_path: Path) -> None:
    async with LocalSystem(tmp_path, command=lambda _: fake_service("stubborn")) as system:
        pids = list(system.services.values())
        os.kill(pids[0], signal.SIGTERM)
        system.kill_now()
    await eventually(lambda: not any(map(start_ticks, pids)))
