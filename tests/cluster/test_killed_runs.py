"""A killed test run leaves no processes and no kernel objects."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from muster_testing.cluster.fixtures import need_node_tools
from muster_testing.conditions import eventually

RUN = Path(__file__).with_name("keep_cluster.py")
GROUPS = Path("/sys/fs/cgroup")


def running(sign: str) -> list[str]:
    """The processes with ``sign`` in their command line or the name of their control group."""
    found: list[str] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if sign in command or sign in (folder / "cgroup").read_text():
                found.append(f"{folder.name} {command}")
        except OSError:
            continue
    return found


async def killed_run(folder: Path, *arguments: str, while_it_runs: Callable[[str], None]) -> str:
    """Start a test run, inspect it when it is ready, and kill it; returns the tag of its node."""
    run = await asyncio.create_subprocess_exec(
        sys.executable, str(RUN), str(folder), *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert run.stdout is not None
    try:
        async with asyncio.timeout(100):
            word, _, tag = (await run.stdout.readline()).decode().strip().partition(" ")
        assert word == "ready"
        while_it_runs(tag)
    finally:
        run.send_signal(signal.SIGKILL)
        await run.wait()
    return tag


async def test_no_program_of_a_control_plane_outlives_a_killed_run(
    cluster_tools: None, tmp_path: Path
) -> None:
    def look(tag: str) -> None:
        assert len(running(str(tmp_path))) >= 5

    await killed_run(tmp_path, while_it_runs=look)

    await eventually(lambda: not running(str(tmp_path)))


async def test_nothing_of_a_real_node_outlives_a_killed_run(cluster_tools: None, tmp_path: Path) -> None:
    need_node_tools()

    def look(tag: str) -> None:
        assert len(running(f"muster-{tag}")) >= 3
        assert Path(f"/sys/class/net/muster-{tag}").exists()

    tag = await killed_run(tmp_path, "node", while_it_runs=look)

    await eventually(lambda: not running(f"muster-{tag}") and not running(str(tmp_path)))
    assert not Path(f"/sys/class/net/muster-{tag}").exists()
    assert not [*GROUPS.glob(f"muster-{tag}"), *GROUPS.glob(f"*/muster-{tag}")]
    assert not (tmp_path / "node" / "containerd").exists()
