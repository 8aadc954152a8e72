"""Faults of the machine below the system: a disk of its own, and clocks that step. Both need root or Debian's `faketime`."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import struct
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from muster_local.programs import module_command
from muster_testing.clocks import fake_time_library

_SHUTDOWN = 0x8004587D
_WITHOUT_LOG_FLUSH = 2
_SIZE = "60G"
_SMALLEST = 4096
_RETRIES = 200


class Disk:
    """An ext4 file system on a sparse file, mounted on `folder`; it has few inodes, so that they can run out."""

    def __init__(self, image: Path, folder: Path) -> None:
        self.folder = folder
        self._image = image
        self._filler = folder / "filler"

    async def create(self) -> None:
        """Create the file system and mount it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        await _run("truncate", "-s", _SIZE, str(self._image))
        options = "lazy_itable_init=1,lazy_journal_init=1"
        await _run(
            "mkfs.ext4", "-q", "-F", "-N", "4096", "-m", "0", "-E", options, "-J", "size=16", str(self._image)
        )
        await self.mount()

    async def mount(self) -> None:
        """Mount it, which replays the journal."""
        await _run("mount", "-o", "loop", str(self._image), str(self.folder))

    async def unmount(self, *, end_users: Callable[[], None] = lambda: None) -> None:
        """Unmount it; `end_users` is called as long as a process keeps it busy."""
        for _ in range(_RETRIES):
            end_users()
            if not os.path.ismount(self.folder):
                return
            try:
                await _run("umount", str(self.folder))
            except subprocess.CalledProcessError:
                await asyncio.sleep(0.05)
        raise RuntimeError(f"{self.folder} stays busy")

    def cut_power(self) -> None:
        """Lose everything that was not synced; nothing can be read or written until the next mount."""
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _WITHOUT_LOG_FLUSH))
        finally:
            os.close(descriptor)

    async def abort(self) -> None:
        """Make it read-only, as the kernel does after an error of the device."""
        await _run("mount", "-o", "remount,abort", str(self.folder))

    def fill(self) -> None:
        """Use all space."""
        size = 1 << 34
        with self._filler.open("ab") as filler:
            while size >= _SMALLEST:
                try:
                    os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def use_all_inodes(self) -> None:
        """Use all inodes."""
        folder = self.folder / "many"
        folder.mkdir()
        try:
            for number in range(1 << 16):
                (folder / str(number)).touch()
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def free(self) -> None:
        """Free the space and the inodes."""
        self._filler.unlink(missing_ok=True)
        folder = self.folder / "many"
        if folder.exists():
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


class Clocks:
    """Clocks of services that can step; the monotonic clock is never changed."""

    def __init__(self, folder: Path, services: Iterable[str]) -> None:
        self._files = {service: folder / f"{service}.clock" for service in services}
        for service in self._files:
            self.step(service, 0)

    def step(self, service: str, seconds: int) -> None:
        """Set the clock of a service to the machine's plus some seconds; it notices within a second."""
        file = self._files[service]
        new = file.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.replace(file)

    def command(self, module: str) -> tuple[str, ...]:
        """Return the command of a module, with its own clock if it is that of a service here."""
        file = self._files.get(module.removeprefix("muster_").replace("_", "-"))
        if file is None:
            return module_command(module)
        variables = {
            "LD_PRELOAD": str(fake_time_library()),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_CACHE_DURATION": "1",
        }
        return (
            "/usr/bin/env",
            *(f"{name}={value}" for name, value in variables.items()),
            *module_command(module),
        )


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, problem = await process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, stderr=problem)
