"""Programs in real containers say how far they are, by a line of their log."""

from __future__ import annotations

import asyncio

import msgspec
from runtime_room import KubeRoom

from muster_core.models import Job
from muster_runtimes import ProgressReport
from muster_runtimes.kubernetes import KubernetesRuntime
from muster_testing.cluster.images import PYTHON_IMAGE
from muster_testing.cluster.node import RealNode

PATIENCE_S = 60

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
    """``job`` with this program, which may have up to ``most`` workers."""
    role = job.roles[0]
    template = msgspec.structs.replace(
        role.template, image=PYTHON_IMAGE, command=("python3", "-uc", program), grace_s=1
    )
    return msgspec.structs.replace(
        job, roles=(msgspec.structs.replace(role, template=template, min=1, max=most),)
    )


async def told(runtime: KubernetesRuntime) -> ProgressReport:
    """The next thing that is told."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if found := await runtime.progress():
                return found[0]
            await asyncio.sleep(0.1)


async def test_the_latest_line_of_a_busy_log_is_read(room: KubeRoom, real_node: RealNode) -> None:
    async with room.runtime() as runtime:
        await room.launch(runtime, telling(room.job(), NOISY, most=2), room.replica(), node=real_node.name)
        first, second = await told(runtime), await told(runtime)

    assert first.replica == room.replica()
    assert second.step > first.step
    assert (second.at, second.metrics) == (
        (1000 + second.step) * 1_000_000,
        {"loss": str(1 / second.step)},
    )


async def test_a_job_whose_size_does_not_change_is_not_asked(room: KubeRoom, real_node: RealNode) -> None:
    async with room.runtime() as runtime:
        fixed, other = telling(room.job(), NOISY, most=1), room.replica()
        await room.launch(runtime, fixed, other, node=real_node.name)
        async for chunk in runtime.logs(room.job_id, [other], follow=True, tail=None):
            if b"muster-progress" in chunk.data:
                break
        assert await runtime.progress() == []
