"""Runs the load generator (`load`) as a process."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
from load import LoadPlan, LoadReport

_LOAD = Path(__file__).with_name("load.py")
_SLACK_S = 120


class LoadFailed(Exception):
    """The load generator ended without a report."""


async def generate(plan: LoadPlan) -> LoadReport:
    """Run the load generator and return its report.

    Raises:
        LoadFailed: it ended without one.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(_LOAD), msgspec.json.encode(plan).decode(), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(plan.seconds + plan.warm_up_s + _SLACK_S):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise LoadFailed(f"the load generator ended with exit code {process.returncode}")
    return msgspec.json.decode(output, type=LoadReport)
