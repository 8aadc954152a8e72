"""``muster doctor`` as tests run it."""

import asyncio
import sys
from pathlib import Path

import msgspec

MUSTER = Path(sys.executable).with_name("muster")
_TIMEOUT_S = 30


class DoctorResult(msgspec.Struct, frozen=True):
    """A result in the command's JSON."""

    check: str
    status: str
    message: str
    subject: str = ""
    fix: str = ""


async def run_doctor(address: str) -> tuple[int, list[DoctorResult]]:
    """Run the command with the gateway at ``address``; returns its exit code, and its warnings and errors."""
    process = await asyncio.create_subprocess_exec(
        MUSTER,
        "--server",
        address,
        "--timeout",
        str(_TIMEOUT_S),
        "doctor",
        "--quiet",
        "-o",
        "json",
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return process.returncode or 0, msgspec.json.decode(output, type=list[DoctorResult])
