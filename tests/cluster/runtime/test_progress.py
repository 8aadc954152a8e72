"""Progress lines in the logs of real containers."""

from __future__ import annotations

import asyncio

import msgspec
from kubernetes_harness import KubernetesHarness

from muster_core.models import Job
from muster_runtimes import ProgressReport
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_testing.cluster.images import PYTHON_IMAGE
from muster_testing.cluster.node import RealNode

TIMEOUT_S = 60

NOISY = """
import json, time
step = 0
while True:
    step += 1
    print("muster-progress:", json.dumps({"step": step, "at": 1000 + step, "metrics": {"loss": 1 / step}}))
    print("muster-progress: no progress")
    for _ in range(300):
        print("and much else", "muster-progress: " * 3)
    time.sleep(0.2)
"""


def telling(job: Job, program: str, *, most: int) -> Job:
    """``job`` with this program and at most ``most`` workers."""
    role = job.roles[0]
    template = msgspec.structs.replace(
        role.template, image=PYTHON_IMAGE, command=("python3", "-uc", program), grace_s=1
    )
    return msgspec.structs.replace(
        job, roles=(msgspec.structs.replace(role, template=template, min=1, max=most),)
    )


async def next_report(runtime: KubernetesRuntime) -> ProgressReport:
    """Wait for the next report."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            if found := await runtime.progress():
                return found[0]
            await asyncio.sleep(0.1)


async def test_the_latest_line_of_a_busy_log_is_read(harness: KubernetesHarness, real_node: RealNode) -> None:
    async with harness.runtime() as runtime:
        await harness.launch(
            runtime, telling(harness.job(), NOISY, most=2), harness.replica(), node=real_node.name
        )
        first, second = await next_report(runtime), await next_report(runtime)

    assert first.replica == harness.replica()
    assert second.step > first.step
    assert (second.at, second.metrics) == ((1000 + second.step) * 1_000_000, {"loss": str(1 / second.step)})


async def test_the_log_of_a_job_of_fixed_size_is_not_read(
    harness: KubernetesHarness, real_node: RealNode
) -> None:
    async with harness.runtime() as runtime:
        fixed, other = telling(harness.job(), NOISY, most=1), harness.replica()
        await harness.launch(runtime, fixed, other, node=real_node.name)
        async for chunk in runtime.logs(harness.job_id, [other], follow=True, tail=None):
            if b"muster-progress" in chunk.data:
                break
        assert await runtime.progress() == []
