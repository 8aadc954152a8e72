"""A scheduler whose cycles take much longer than its lease, like one of a very large pool."""

from __future__ import annotations

import time
from unittest.mock import patch

from muster_core.scheduling import Instruction, PoolState
from muster_scheduler.service import build
from muster_scheduler.settings import SchedulerSettings
from muster_service.app import run_app

CYCLE_S = 5.0

decide = PoolState.decide


def decide_slowly(state: PoolState, now: int) -> list[Instruction]:
    """Run a normal cycle after some seconds of computation."""
    until = time.monotonic() + CYCLE_S
    while state.index.waiting and time.monotonic() < until:
        sum(range(1000))
    return decide(state, now)


if __name__ == "__main__":
    with patch.object(PoolState, "decide", decide_slowly):
        run_app(build, settings=SchedulerSettings, service="scheduler")
