"""A pod-launcher to be killed: starts replicas 0..count-1 of ``job-1``, prints ``started`` and runs until its end.

Arguments: root, workdir, count, and the replicas' command.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from muster_core.models import Node, Resources, Template
from muster_runtimes import Launch, ReplicaId
from muster_runtimes.process import ProcessRuntime


async def main(root: str, workdir: str, count: str, *command: str) -> None:
    runtime = ProcessRuntime(
        root=Path(root),
        nodes=[Node(name="here", allocatable=Resources(cpu=4000))],
        workdir=Path(workdir),
        environ=os.environ,
        clock=lambda: time.time_ns() // 1000,
    )
    launches = [
        Launch(
            replica=ReplicaId(job_id="job-1", attempt=1, role="worker", index=index),
            name=f"job-1-worker-{index}",
            node="here",
            template=Template(command=command),
            env={"MUSTER_TEST_ROOT": root, "INDEX": str(index)},
        )
        for index in range(int(count))
    ]
    watching = asyncio.create_task(runtime.run())
    await asyncio.gather(*map(runtime.start, launches))
    os.write(1, b"started\n")
    await watching


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
