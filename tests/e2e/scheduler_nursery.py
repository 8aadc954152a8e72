"""Starts schedulers quickly: a process that has imported everything, and forks one for each line that it reads.

A test that kills a hundred of them would otherwise spend its time on imports. Each line is the instance's name and the file for its
log; the answer is its process id.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

from muster_scheduler.service import build
from muster_scheduler.settings import SchedulerSettings
from muster_service.app import run_app


def main() -> None:
    """Fork until there is nothing more to read."""
    # A service imports this only when it starts to serve.
    import_module("muster_service.grpc_host")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        name, log = line.rstrip("\n").split("\t")
        pid = os.fork()
        if not pid:
            run(name, log)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def run(name: str, log: str) -> None:
    """Be a scheduler."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())
    os.dup2(os.open(os.devnull, os.O_RDWR), sys.stdin.fileno())
    os.environ["MUSTER_SCHEDULER_INSTANCE"] = name
    run_app(build, settings=SchedulerSettings, service="scheduler", arguments=())


if __name__ == "__main__":
    main()
