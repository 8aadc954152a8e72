"""Jobs that go from 2 workers to 4, to 1 and to 3 while they train, by ``muster scale``, and take exactly the required
steps.

Muster restarts no replica: one that stays is the same process without any signal. ``torchrun`` restarts its training
processes whenever the membership changes, by design, and they continue from the checkpoint.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from framework_jobs import (
    EXAMPLES,
    example,
    has_environment,
    processes_with,
    read_logs,
    running,
    when,
    when_logged,
)

from muster import AsyncClient, Job
from muster_local import LocalSystem
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2

if TYPE_CHECKING:
    from .conftest import Needs

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("frameworks"),
    pytest.mark.timeout(290),
    pytest.mark.slow,
]

SIZES = (4, 1, 3)
DIGITS = EXAMPLES.parent / "digits/job.yaml"


async def test_a_torchrun_job_resized_to_four_one_and_three_takes_every_step(
    system: LocalSystem, muster: AsyncClient, needs: Needs, tmp_path: Path
) -> None:
    needs("torchrun", "python3-torch")
    document = example("pytorch/elastic.yaml")
    document = document.replace("/tmp/elastic-$(MUSTER_JOB_ID).pt", str(tmp_path / "kept.pt"))
    (submitted,) = await muster.submit(document)
    await when_logged(muster, submitted.job_id, *begins(2))
    stays = leaders("torchrun", submitted.job_id, "worker-0")

    for size in SIZES:
        await scale(system, muster, submitted.job_id, size)
        await when_logged(muster, submitted.job_id, *begins(size))
        assert leaders("torchrun", submitted.job_id, "worker-0") == stays
    job = await muster.wait(submitted.job_id)
    logs = await read_logs(muster, submitted.job_id)

    assert job.status.phase == job_pb2.PHASE_SUCCEEDED, f"{job.status}\n{logs}"
    assert_nothing_was_restarted(job)
    ends = set(re.findall(r"of 3 ends at step (.*)", logs))
    assert ends == {await fitted_alone(tmp_path)}, logs


async def test_the_digit_classifier_is_resized_while_its_server_keeps_running(
    system: LocalSystem, muster: AsyncClient
) -> None:
    document = DIGITS.read_text().replace("cpu: 500m", "cpu: 100m").replace("name: digits", "name: scaled")
    document = document.replace("  framework:", "  elastic: {policy: none}\n  framework:")
    steps = 5000
    document = document.replace("20000", str(steps)).replace("delay_ms=3", "delay_ms=20")
    (submitted,) = await muster.submit(document)
    await when_logged(muster, submitted.job_id, "worker-1 joined", "2 at work")
    stay = {who: leaders("train.py", submitted.job_id, who) for who in ("ps-0", "worker-0")}

    for size in SIZES:
        await scale(system, muster, submitted.job_id, size)
        await when_logged(muster, submitted.job_id, f"{size} at work")
        assert {who: leaders("train.py", submitted.job_id, who) for who in stay} == stay
    job = await muster.wait(submitted.job_id)
    logs = await read_logs(muster, submitted.job_id)

    assert job.status.phase == job_pb2.PHASE_SUCCEEDED, f"{job.status}\n{logs}"
    assert_nothing_was_restarted(job)
    assert f"after {steps} steps" in logs
    # A restarted server would have restarted at step 0.
    joined = [int(step) for step in re.findall(r"^worker-\d joined at step (\d+)", logs, re.MULTILINE)]
    assert joined.count(0) <= 2
    assert joined == sorted(joined)


def begins(size: int) -> list[str]:
    """Return the lines of torchrun's processes at this size."""
    return [f"rank {rank} of {size} begins" for rank in range(size)]


async def scale(system: LocalSystem, muster: AsyncClient, job_id: str, size: int) -> None:
    """Scale, and wait until this many workers run and none is terminating."""
    process = await asyncio.create_subprocess_exec(
        Path(sys.executable).parent / "muster",
        "scale",
        job_id,
        f"worker={size}",
        env={**os.environ, "MUSTER_SERVER": system.address},
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(60):
        assert await process.wait() == 0
    workers = {f"worker-{index}" for index in range(size)}
    await when(
        muster,
        job_id,
        lambda job: {f"{one.role}-{one.index}" for one in running(job).values()} - {"ps-0"} == workers,
    )


def leaders(program: str, job_id: str, replica: str) -> set[int]:
    """Return the processes of a replica that Muster started: each leads a process group."""
    role, _, index = replica.rpartition("-")
    return {
        pid
        for pid in processes_with(program)
        if has_environment(pid, f"MUSTER_JOB_ID={job_id}", f"MUSTER_ROLE={role}", f"MUSTER_INDEX={index}")
        and os.getpgid(pid) == pid
    }


def assert_nothing_was_restarted(job: Job) -> None:
    """Check for one attempt with four manual generations; members that stayed were started once, a returning one twice."""
    assert (job.status.attempt, job.status.generation, job.status.failures) == (1, 4, 0)
    resized = [entry.reason for entry in job.status.history if event_name(entry.event) == "JobResized"]
    assert resized == ["Grown", "Shrunk", "Grown"]
    starts = {f"{one.role}-{one.index}": one.restart for one in job.status.replicas}
    assert starts.pop("ps-0", 0) == starts.pop("worker-3", 0) == 0
    assert starts == {"worker-0": 0, "worker-1": 1, "worker-2": 1}
    assert "JobRestarting" not in {event_name(entry.event) for entry in job.status.history}


async def fitted_alone(folder: Path) -> str:
    """Return the output of one process that took the same steps without Muster."""
    standalone = {
        "STEPS": "400",
        "CHECKPOINT": str(folder / "alone.pt"),
        "GLOO_SOCKET_IFNAME": "lo",
        "PET_REDIRECTS": "9:1",
        "PET_TEE": "9:1",
    }
    process = await asyncio.create_subprocess_exec(
        "torchrun",
        "--standalone",
        "--nproc_per_node=1",
        EXAMPLES / "pytorch/elastic.py",
        env={**os.environ, **standalone},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(90):
        out, _ = await process.communicate()
    (last_step,) = re.findall(r"of 1 ends at step (.*)", out.decode())
    return last_step
