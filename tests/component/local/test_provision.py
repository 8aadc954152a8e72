import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from muster_local.system import LocalSystem
from muster_testing.broker import Broker


def provision(url: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "muster_local.provision"],
        env={**os.environ, "MUSTER_BUS_URL": url, "MUSTER_BUS_USER": "", **settings},
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


async def test_streams_fit_into_a_small_store_only_with_its_size(tmp_path: Path) -> None:
    async with Broker(tmp_path / "broker", max_store_bytes=1 << 30) as broker:
        refused = provision(broker.url)
        fitted = provision(broker.url, MUSTER_STORE_BYTES=str(1 << 30))

    assert refused.returncode == 1
    assert "stream JOBS of 8589934592 bytes does not fit" in refused.stderr
    assert "set MUSTER_STORE_BYTES" in refused.stderr
    assert fitted.returncode == 0
