"""Time from the start of `muster up` in an empty folder to its ready line."""

import asyncio
import signal
import socket
import statistics
import sys
import time
from pathlib import Path

from measuring import Measurement
from system_under_test import fresh_folder

NAMES = ("up_ready_s",)

_READY = b"Muster is ready"
_TIMEOUT_S = 60.0
_COMMAND = Path(sys.executable).with_name("muster")


class NotReady(Exception):
    """`muster up` ended before it was ready."""


async def measure(root: Path, *, quick: bool) -> list[Measurement]:
    """Return the median of several starts with a warm disk cache."""
    starts = [await _start(root) for _ in range(1 if quick else 3)]
    reported = ", ".join(f"{seconds:.2f}" for seconds in starts)
    return [
        Measurement(
            name="up_ready_s",
            value=statistics.median(starts),
            unit="s",
            budget=4,
            note=f"the median of {reported}",
        )
    ]


async def _start(root: Path) -> float:
    with fresh_folder(root) as folder:
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            str(_COMMAND),
            "up",
            "--data",
            str(folder / "data"),
            "--port",
            str(_free_port()),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await _until_ready(process)
            return time.monotonic() - began
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                await process.communicate()


async def _until_ready(process: asyncio.subprocess.Process) -> None:
    lines: list[bytes] = []
    if process.stdout is not None:
        async for line in process.stdout:
            if line.startswith(_READY):
                return
            lines.append(line)
    raise NotReady(b"".join(lines[-5:]).decode(errors="replace"))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
