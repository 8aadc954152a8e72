"""The digit classifier as a job runs it: one process per replica with only TF_CONFIG; workers join and leave."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WAIT_S = 60.0
PUSHED = re.compile(r"(\d+) gradients pushed")
FINAL = re.compile(r"final test accuracy (\d\.\d{4}) after (\d+) steps \(target 0\.95\)")


class Replica:
    """One process and its output."""

    def __init__(self, name: str, *flags: str, **environ: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "examples/digits/train.py", *flags],
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until_it_says(self, words: str) -> str:
        """Wait for the first line that contains ``words`` while the process runs."""
        deadline = time.monotonic() + WAIT_S
        with self._news:
            while True:
                found = next((line for line in self.lines if words in line), None)
                if found is not None:
                    return found
                assert self._reader.is_alive(), f"{self.name} ended without {words!r}: {self.lines}"
                assert time.monotonic() < deadline, f"{self.name} never printed {words!r}: {self.lines}"
                self._news.wait(0.5)

    def exit_code(self) -> int:
        """Wait for the exit code."""
        code = self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()


class Job:
    """One ps and up to four workers with fixed addresses."""

    def __init__(self, *flags: str) -> None:
        addresses = [f"127.0.0.1:{port}" for port in free_ports(5)]
        self._cluster = {"ps": addresses[:1], "worker": addresses[1:]}
        self._flags = ("--linger_s=0.2", *flags)
        self._started: list[Replica] = []

    def start(self, role: str, index: int = 0) -> Replica:
        config = {"cluster": self._cluster, "task": {"type": role, "index": index}, "environment": "cloud"}
        replica = Replica(f"{role}-{index}", *self._flags, TF_CONFIG=json.dumps(config))
        self._started.append(replica)
        return replica

    def end(self) -> None:
        for replica in self._started:
            replica.process.kill()
            replica.exit_code()


def free_ports(count: int) -> list[int]:
    """Return free ports, all different because all are bound at once."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture
def new_job() -> Iterator[Callable[..., Job]]:
    """Creates jobs whose processes end with the test."""
    made: list[Job] = []

    def make(*flags: str) -> Job:
        made.append(Job(*flags))
        return made[-1]

    yield make
    for job in made:
        job.end()


def final_result(replica: Replica) -> tuple[float, int]:
    """Return accuracy and steps of the final line."""
    (found,) = [match for line in replica.lines if (match := FINAL.fullmatch(line))]
    return float(found[1]), int(found[2])


def test_it_reaches_its_accuracy_while_workers_are_killed_and_others_join(
    new_job: Callable[..., Job],
) -> None:
    job = new_job("--global_steps=6000", "--step_delay_ms=2")
    server, chief, doomed = job.start("ps"), job.start("worker", 0), job.start("worker", 1)
    doomed.until_it_says("joined at step")
    chief.until_it_says("workers 2,")

    doomed.process.kill()
    server.until_it_says("worker-1 was lost")
    grown = [job.start("worker", index) for index in (2, 3)]
    back = job.start("worker", 1)
    chief.until_it_says("workers 4,")

    assert [worker.exit_code() for worker in (chief, back, *grown)] == [0, 0, 0, 0]
    assert server.exit_code() == 0
    accuracy, steps = final_result(chief)
    assert accuracy >= 0.95
    assert steps == 6000
    assert not [line for worker in (back, *grown) for line in worker.lines if "accuracy" in line]


def test_workers_wait_for_a_server_that_starts_last(new_job: Callable[..., Job]) -> None:
    job = new_job("--global_steps=2500")
    workers = [job.start("worker", index) for index in (0, 1)]
    for worker in workers:
        worker.until_it_says("waiting for the parameter server")
    server = job.start("ps")
    assert [worker.exit_code() for worker in workers] == [0, 0]
    assert server.exit_code() == 0
    assert final_result(workers[0])[0] >= 0.95


def test_a_chief_that_is_killed_comes_back_and_still_judges(new_job: Callable[..., Job]) -> None:
    job = new_job("--global_steps=2500", "--step_delay_ms=1")
    server, chief, other = job.start("ps"), job.start("worker", 0), job.start("worker", 1)
    for worker in (chief, other):
        worker.until_it_says("joined at step")
    chief.process.kill()
    assert other.exit_code() == 0
    assert server.process.poll() is None
    chief = job.start("worker", 0)
    assert chief.exit_code() == 0
    assert server.exit_code() == 0
    assert final_result(chief)[1] == 2500


def test_every_gradient_counts_once(new_job: Callable[..., Job]) -> None:
    job = new_job("--global_steps=2000", "--step_delay_ms=2", "--target_accuracy=0")
    server, *workers = job.start("ps"), job.start("worker", 0), job.start("worker", 1)
    terminating = job.start("worker", 2)
    for worker in (*workers, terminating):
        worker.until_it_says("joined at step")
    terminating.process.terminate()
    assert terminating.exit_code() == 143
    assert [worker.exit_code() for worker in workers] == [0, 0]
    assert server.exit_code() == 0
    pushed = [int(found[1]) for each in (*workers, terminating) for found in PUSHED.finditer(each.lines[-1])]
    assert len(pushed) == 3
    too_late_at_most = len(workers) - 1
    assert 2000 <= sum(pushed) <= 2000 + too_late_at_most


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_server_leaves_when_asked(
    new_job: Callable[..., Job], number: signal.Signals
) -> None:
    worker = new_job().start("worker", 1)
    worker.until_it_says("waiting for the parameter server")
    worker.process.send_signal(number)
    assert worker.exit_code() == 128 + number


def test_a_worker_outlives_its_server(new_job: Callable[..., Job]) -> None:
    job = new_job("--global_steps=800", "--step_delay_ms=1", "--report_every=100", "--target_accuracy=0.5")
    server, worker = job.start("ps"), job.start("worker", 0)
    worker.until_it_says("workers 1,")
    server.process.terminate()
    assert server.exit_code() == 143
    worker.until_it_says("waiting for the parameter server")
    server = job.start("ps")
    assert worker.exit_code() == 0
    assert server.exit_code() == 0
    assert worker.lines.count("worker-0: joined at step 0, 1 at work") == 2
    assert "after 800 steps" in worker.lines[-2]


def test_a_missed_target_is_a_failure_of_the_chief_alone(new_job: Callable[..., Job]) -> None:
    job = new_job("--global_steps=10")
    server, chief, other = job.start("ps"), job.start("worker", 0), job.start("worker", 1)
    assert chief.exit_code() == 1
    assert other.exit_code() == 0
    assert server.exit_code() == 0


def test_a_worker_times_out_without_a_server(new_job: Callable[..., Job]) -> None:
    worker = new_job("--timeout_s=0.3").start("worker", 1)
    assert worker.exit_code() == 138
    assert re.search(r"error: no parameter server at 127\.0\.0\.1:\d+ for 0\.3 s", worker.lines[-1])


@pytest.mark.parametrize(
    "environ", [{}, {"TF_CONFIG": "{"}, {"TF_CONFIG": '{"cluster": {"worker": ["a:1", "b:1"]}}'}]
)
def test_a_bad_tf_config_is_answered_by_one_line(environ: dict[str, str]) -> None:
    replica = Replica("unnamed", **environ)
    assert replica.exit_code() == 2
    assert len(replica.lines) == 1
    assert replica.lines[0].startswith("error: TF_CONFIG")
