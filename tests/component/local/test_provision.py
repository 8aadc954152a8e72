import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from muster_local.system import LocalSystem


def provision(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster_local.provision"],
        env={**os.environ, "MUSTER_BUS_URL": url, "MUSTER_BUS_USER": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def test_provisioning_is_idempotent(
    tmp_path: Path, fake_command: Callable[[str], tuple[str, ...]]
) -> None:
    async with LocalSystem(tmp_path, command=fake_command) as system:
        first, second = provision(system.bus_url), provision(system.bus_url)
    assert (first.returncode, second.returncode) == (0, 0)
    assert "has all streams, consumers and buckets" in second.stderr
