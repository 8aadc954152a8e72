import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from muster_local.directory import DataDirectory, DirectoryInUse, start_ticks
from muster_local.processes import LocalError
from muster_testing.conditions import eventually

SUPERVISOR = Path(__file__).with_name("supervisor_process.py")


def start_supervisor(directory: Path) -> tuple[subprocess.Popen[str], list[int]]:
    supervisor = subprocess.Popen(
        [sys.executable, str(SUPERVISOR), str(directory)], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout
    return supervisor, [int(pid) for pid in supervisor.stdout.readline().split()]


async def test_programs_end_with_a_killed_supervisor_and_their_detached_children_do_not(
    tmp_path: Path,
) -> None:
    supervisor, pids = start_supervisor(tmp_path)
    with supervisor:
        assert len(pids) == 3
        detached = int((tmp_path / "detached").read_text())
        try:
            supervisor.kill()
            supervisor.wait(30)
            await eventually(lambda: not any(map(start_ticks, pids)))
            assert start_ticks(detached)
        finally:
            os.kill(detached, signal.SIGKILL)


async def test_the_directory_of_a_killed_supervisor_is_unlocked_once_its_broker_has_ended(
    tmp_path: Path,
) -> None:
    supervisor, pids = start_supervisor(tmp_path)
    with supervisor:
        detached = int((tmp_path / "detached").read_text())
        try:
            with pytest.raises(
                DirectoryInUse, match=rf"is in use by another `muster up` \(pid {supervisor.pid}\)"
            ) as used:
                await DataDirectory(tmp_path).lock()
            assert used.value.pid == supervisor.pid
            supervisor.kill()
            supervisor.wait(30)
            os.close(await DataDirectory(tmp_path).lock())
            assert not any(map(start_ticks, pids[2:]))
        finally:
            os.kill(detached, signal.SIGKILL)
            supervisor.kill()


async def test_a_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalError, match="as data directory: Not a directory"):
        DataDirectory(tmp_path / "file" / "data").make()
