"""A fork server for schedulers: it imports everything once, and forks a scheduler for each input line.

A test that kills a hundred schedulers would otherwise spend its time on imports. A line has the instance's name and its
log file; the response is the process id.
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
    """Fork until the end of the input."""
    # The services import this module lazily.
    import_module("muster_service.grpc_server")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        name, log = line.rstrip("\n").split("\t")
        pid = os.fork()
        if not pid:
            run(name, log)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def run(name: str, log: str) -> None:
    """Run a scheduler in this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), sys.stderr.fileno())
    os.dup2(os.open(os.devnull, os.O_RDWR), sys.stdin.fileno())
    os.environ["MUSTER_SCHEDULER_INSTANCE"] = name
    run_app(build, settings=SchedulerSettings, service="scheduler", arguments=())


if __name__ == "__main__":
    main()
