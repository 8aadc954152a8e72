"""The example documents, and helpers to read their jobs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from muster import AsyncClient, Job
from muster_rpc.v1 import job_pb2

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/frameworks"
TIMEOUT_S = 120


def example(path: str, *, name: str = "") -> str:
    """Return the document under another ``name``: jobs of one name cannot run side by side."""
    text = (EXAMPLES / path).read_text()
    return re.sub(r"(metadata:\n  name: ).*\n", rf"\1{name}\n", text) if name else text


async def read_logs(muster: AsyncClient, job_id: str) -> str:
    """Return all output of the replicas."""
    return b"".join([chunk.data async for chunk in muster.logs(job_id)]).decode()


async def when_logged(muster: AsyncClient, job_id: str, *words: str) -> None:
    """Wait until the replicas have printed all of ``words``."""
    seen = ""
    async with asyncio.timeout(TIMEOUT_S):
        async for chunk in muster.logs(job_id, follow=True):
            seen += chunk.data.decode()
            if all(one in seen for one in words):
                return
    raise AssertionError(f"ended without printing {words}: {seen}")


async def when(muster: AsyncClient, job_id: str, condition: Callable[[Job], bool]) -> Job:
    """Return the job as soon as the condition holds."""
    async with asyncio.timeout(TIMEOUT_S):
        async for seen in muster.watch(job_id):
            if condition(seen):
                return seen
    raise AssertionError(f"{job_id} ended before the condition held")


def running(job: Job) -> dict[str, job_pb2.Replica]:
    """Return the running replicas by name."""
    return {r.name: r for r in job.status.replicas if r.state == job_pb2.REPLICA_STATE_RUNNING}


def processes_with(words: str) -> list[int]:
    """Return the processes of this machine whose command line contains ``words``."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if words in line:
                found.append(int(entry.name))
    return found


def has_environment(pid: int, *variables: str) -> bool:
    """Return whether the process has these environment variables."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return {one.encode() for one in variables} <= set(environment)
