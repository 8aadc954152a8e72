"""The kernel's scheduling policy: batch for services and broker, the default for jobs' programs (decision 028)."""

from __future__ import annotations

import os
import sys

from documents import job
from harness import Connect, Launcher, output_of, submit

from muster_local import read_endpoints

PRINT_POLICY = "import os; print('policy', os.sched_getscheduler(0))"


async def test_services_use_batch_scheduling_and_jobs_do_not(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        endpoints = read_endpoints(system.directory.endpoints)
        assert endpoints is not None
        assert endpoints.broker_pid is not None
        pids = {**system.services, "broker": endpoints.broker_pid}
        policies = {name: os.sched_getscheduler(pid) for name, pid in pids.items()}
        assert policies == dict.fromkeys(pids, os.SCHED_BATCH)
        job_id = await submit(muster, job("prints", sys.executable, "-c", PRINT_POLICY))
        await muster.wait(job_id)
        assert await output_of(muster, job_id) == f"policy {os.SCHED_OTHER}\n"
