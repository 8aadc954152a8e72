"""Services let others finish what they are at, and the programs of jobs run as any program does (decision 028)."""

from __future__ import annotations

import os
import sys

from documents import job
from harness import Connect, Launcher

from muster_local import read_endpoints

SAY = "import os; print('policy', os.sched_getscheduler(0))"


async def test_services_interrupt_nobody_and_programs_of_jobs_run_as_usual(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        endpoints = read_endpoints(system.directory.endpoints)
        assert endpoints is not None
        assert endpoints.broker_pid is not None
        pids = {**system.services, "broker": endpoints.broker_pid}
        assert {name: os.sched_getscheduler(pid) for name, pid in pids.items()} == dict.fromkeys(
            pids, os.SCHED_BATCH
        )
        (submitted,) = await muster.submit(job("asks", sys.executable, "-c", SAY))
        await muster.wait(submitted.job_id)
        said = b"".join([chunk.data async for chunk in muster.logs(submitted.job_id)]).decode()
    assert said == f"policy {os.SCHED_OTHER}\n"
