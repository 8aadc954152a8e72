"""What is drawn on a terminal: colours, live displays, and a clean screen after Ctrl-C."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from muster_rpc.v1 import job_pb2

if TYPE_CHECKING:
    from tests.component.client.conftest import GatewayDouble

MakeJob = Callable[..., job_pb2.Job]
MakeReplica = Callable[..., job_pb2.Replica]
SHOW_CURSOR = "\x1b[?25h"
WAIT_S = 30


class Terminal:
    """A process on a terminal of its own; ``seen`` is all that it has drawn."""

    def __init__(self, arguments: list[str], env: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            arguments, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)

    def wait_for(self, text: str) -> None:
        """Read until ``text`` was drawn."""
        deadline = time.monotonic() + WAIT_S
        while text not in self.seen:
            assert time.monotonic() < deadline, (text, self.seen)
            assert self._read(), (text, self.seen)

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        while self._read():
            pass
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        """Let go of both."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._ours], [], [], WAIT_S)
        assert ready, self.seen
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(address: str) -> Iterator[Open]:
    opened: list[Terminal] = []

    def start(*arguments: str, **env: str) -> Terminal:
        base = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
        env = {**base, "MUSTER_SERVER": address, "TERM": "xterm-256color", "COLUMNS": "120", **env}
        opened.append(Terminal([str(Path(sys.executable).parent / "muster"), *arguments], env))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_a_watch_draws_replicas_below_the_events(
    terminal: Open, gateway: GatewayDouble, job: MakeJob, replica: MakeReplica
):
    gateway.publish(
        job(
            job_pb2.PHASE_RUNNING,
            revision=1,
            replicas=(replica(0, job_pb2.REPLICA_STATE_RUNNING),),
            reason="all run",
        )
    )
    screen = terminal("watch", "demo")
    screen.wait_for("worker-0")
    gateway.publish(job(job_pb2.PHASE_SUCCEEDED, revision=2))
    assert screen.end() == 0
    assert "\x1b[32m" in screen.seen
    assert screen.seen.rindex("demo succeeded") > screen.seen.rindex(SHOW_CURSOR)


def test_ctrl_c_leaves_a_list_with_its_cursor(terminal: Open, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=1))
    screen = terminal("list", "-w")
    screen.wait_for("Running")
    screen.process.send_signal(2)
    assert screen.end() == 130
    assert SHOW_CURSOR in screen.seen


def test_no_color_is_heeded(terminal: Open, gateway: GatewayDouble, job: MakeJob):
    gateway.publish(job(job_pb2.PHASE_RUNNING, revision=1))
    gateway.chunks = [(0, b"one\n")]
    for arguments in (("list",), ("logs", "demo")):
        screen = terminal(*arguments, NO_COLOR="1")
        assert screen.end() == 0
        assert "\x1b[3" not in screen.seen
