"""`muster up` on small and full file systems."""

from __future__ import annotations

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from muster_local.processes import LocalError
from muster_local.system import LocalSystem
from muster_testing.small_filesystem import SmallFilesystem

Command = Callable[[str], tuple[str, ...]]

GIB_IN_MIB = 1024


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Generator[SmallFilesystem]:
    """A tmpfs of the size that the test's parameter gives in MiB."""
    with SmallFilesystem(tmp_path / "disk", size_mib=request.param) as mounted:
        yield mounted


@pytest.mark.parametrize("disk", [256, 20 * GIB_IN_MIB], indirect=True)
async def test_it_starts_again_and_again_on_a_small_disk(
    disk: SmallFilesystem, fake_command: Command
) -> None:
    for _ in range(3):
        async with LocalSystem(disk.folder / "data", command=fake_command) as system:
            assert system.started


@pytest.mark.parametrize("disk", [256], indirect=True)
async def test_too_little_space_is_refused_before_anything_starts(
    disk: SmallFilesystem, fake_command: Command
) -> None:
    disk.fill(leave_bytes=100 << 20)
    system = LocalSystem(disk.folder / "data", command=fake_command)

    with pytest.raises(LocalError, match=r"19\d MiB needed, 100 MiB free in .*/disk/data/broker/store"):
        await system.start()

    await system.stop()
    assert not (disk.folder / "data").exists()


@pytest.mark.parametrize("disk", [256], indirect=True)
async def test_a_store_that_exists_needs_less(disk: SmallFilesystem, fake_command: Command) -> None:
    system = LocalSystem(disk.folder / "data", command=fake_command)
    async with system:
        pass
    store = disk.folder / "data" / "broker" / "store"
    (store / "more").write_bytes(bytes(180 << 20))

    async with system:
        assert system.started

    disk.fill()
    with pytest.raises(LocalError, match=r"32 MiB needed, 0 MiB free"):
        await system.start()
    await system.stop()


async def test_too_few_inodes_are_refused_before_anything_starts(
    tmp_path: Path, fake_command: Command
) -> None:
    with SmallFilesystem(tmp_path / "disk", size_mib=256, inodes=100) as disk:
        system = LocalSystem(disk.folder / "data", command=fake_command)

        with pytest.raises(LocalError, match=r"200 needed, \d+ free"):
            await system.start()

        await system.stop()
