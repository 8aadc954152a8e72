import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster_local.command import up
from muster_local.directory import start_ticks
from muster_local.endpoints import Endpoints, read_endpoints
from muster_testing.conditions import eventually

UP_PROCESS = Path(__file__).with_name("up_process.py")


class UpProcess:
    """A `muster up` in a process of its own."""

    def __init__(self, popen: subprocess.Popen[str], data: Path) -> None:
        self.popen = popen
        self.data = data
        self.text = ""

    def read_until(self, expected: str) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.text += line
            if expected in line:
                return
        raise AssertionError(f"{expected!r} did not appear in the output:\n{self.text}")

    def end(self) -> int:
        assert self.popen.stdout
        self.text += self.popen.stdout.read()
        return self.popen.wait(60)

    def endpoints(self) -> Endpoints:
        endpoints = read_endpoints(self.data / "endpoints.json")
        assert endpoints is not None
        return endpoints


@contextmanager
def muster_up(data: Path, behaviour: str = "serve", *arguments: str) -> Generator[UpProcess]:
    popen = subprocess.Popen(
        [sys.executable, str(UP_PROCESS), str(data), behaviour, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with popen:
        try:
            yield UpProcess(popen, data)
        finally:
            popen.kill()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_summary_has_all_addresses_and_a_signal_stops_gracefully(
    tmp_path: Path, signum: signal.Signals
) -> None:
    with muster_up(tmp_path) as running:
        running.read_until("Muster is ready after")
        running.read_until("Next: ")
        endpoints = running.endpoints()
        for place in (endpoints.gateway, endpoints.bus_url, endpoints.services["scaler"].metrics):
            assert place in running.text
        assert f"muster --server {endpoints.gateway} submit" in running.text
        pids = [service.pid or 0 for service in endpoints.services.values()]
        running.popen.send_signal(signum)
        assert running.end() == 0
    assert "\x1b[" not in running.text
    assert running.text.count("drained") == 7
    assert running.text.endswith("Muster has stopped.\n")
    assert not any(map(start_ticks, pids))


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    with muster_up(tmp_path, "stubborn") as running:
        running.read_until("Next: ")
        running.popen.send_signal(signal.SIGINT)
        running.read_until("Ctrl-C again")
        running.popen.send_signal(signal.SIGINT)
        assert running.end() == 0
    assert "was killed" not in running.text


def test_a_signal_during_the_start_stops_the_started_programs(tmp_path: Path) -> None:
    with muster_up(tmp_path, "stubborn") as running:
        running.read_until("scheduler")
        running.popen.send_signal(signal.SIGINT)
        running.read_until("Ctrl-C again")
        running.popen.send_signal(signal.SIGINT)
        assert running.end() == 0


def test_invalid_settings_of_a_service_are_shown_and_stop_the_system(tmp_path: Path) -> None:
    with muster_up(tmp_path, "refuse") as running:
        assert running.end() == 1
    assert "cannot start (exit code 2)" in running.text
    assert "MUSTER_BUS_URL='x': must be a URL" in running.text
    assert read_endpoints(tmp_path / "endpoints.json") is None


def test_a_gateway_port_in_use_is_reported(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with muster_up(tmp_path, "serve", port) as running:
            assert running.end() == 1
    assert f"port {port} is in use by another program" in running.text


async def test_all_programs_end_with_a_killed_up_and_the_next_up_starts(tmp_path: Path) -> None:
    with muster_up(tmp_path, "stubborn") as running:
        running.read_until("Next: ")
        endpoints = running.endpoints()
        pids = [service.pid or 0 for service in endpoints.services.values()]
        running.popen.kill()
        await eventually(lambda: not any(map(start_ticks, [*pids, endpoints.broker_pid or 0])))
    with muster_up(tmp_path) as again:
        again.read_until("Next: ")
        assert again.endpoints().gateway == endpoints.gateway
        again.popen.send_signal(signal.SIGTERM)
        assert again.end() == 0


def test_up_continues_when_its_output_is_closed(tmp_path: Path) -> None:
    with muster_up(tmp_path) as running:
        running.read_until("Next: ")
        pid = running.endpoints().services["gateway"].pid or 0
        assert running.popen.stdout
        running.popen.stdout.close()
        os.kill(pid, signal.SIGTERM)
        running.popen.send_signal(signal.SIGTERM)
        assert running.popen.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--node", "n1:cpu=lots"], "node 'n1:cpu=lots': 'cpu=lots'"),
        (["--node", "n1:cpu=1", "--node", "n1:cpu=2"], "another node has the name n1"),
        (["--node", "UPPER"], "'UPPER' is not a valid name"),
        (["--instances", "scheduler=0"], "'0' is not a number of instances"),
        (["--instances", "clock=2"], "'clock' is not one of gateway, spec-validator"),
        (["--idle-period", "soon"], "'soon' is not a duration"),
        (["--policy", "lion"], "'lion' is not one of"),
        (["--port", "70000"], "70000 is not in the range"),
    ],
)
def test_bad_usage_is_refused_before_anything_starts(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    data = tmp_path / "data"
    result = CliRunner().invoke(up, ["--data", str(data), *arguments])
    assert result.exit_code == 2
    assert expected in result.output
    assert not data.exists()
