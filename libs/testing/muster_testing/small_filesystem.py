"""A small file system of a test's own, which it can fill, make read-only, or use up the inodes of."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

_BUSY_S = 10.0
_POLL_S = 0.05
_CHUNK = 1 << 20


class CannotMount(Exception):
    """This process may not mount file systems; a failure, not a skip, since nothing else shows what a full disk does."""


class SmallFilesystem:
    """A file system mounted at ``folder``: a tmpfs, or ext4 in an image file.

    Args:
        folder: created; the file system is unmounted at the end, and an image removed.
        size_mib: its size. A tmpfs takes memory only for what is written.
        inodes: how many files it can hold.
        kind: ``ext4`` can be made read-only while files are open.
    """

    def __init__(
        self,
        folder: Path,
        *,
        size_mib: int,
        inodes: int | None = None,
        kind: Literal["tmpfs", "ext4"] = "tmpfs",
    ) -> None:
        self.folder = folder
        self._size_mib = size_mib
        self._inodes = inodes
        self._kind = kind
        self._image = folder.with_name(folder.name + ".img")
        self._ballast = folder / "ballast"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True)
        if self._kind == "ext4":
            with self._image.open("wb") as image:
                image.truncate(self._size_mib << 20)
            # Without reserved blocks, root has no more space than others.
            inodes = () if self._inodes is None else ("-N", str(self._inodes))
            _run("mkfs.ext4", "-q", "-m", "0", *inodes, str(self._image))
        self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _run("umount", "--lazy", str(self.folder))
        self._image.unlink(missing_ok=True)

    @property
    def free_bytes(self) -> int:
        """What is free."""
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def mount(self) -> None:
        """Mount it; raises ``CannotMount``."""
        options = f"size={self._size_mib}m" + ("" if self._inodes is None else f",nr_inodes={self._inodes}")
        source = ("-t", "tmpfs", "-o", options, "tmpfs")
        if self._kind == "ext4":
            source = ("-o", "loop", str(self._image))
        _run("mount", *source, str(self.folder))

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Write until ``leave_bytes`` are free; without that, until nothing can be written."""
        with self._ballast.open("ab", buffering=0) as ballast:
            try:
                while leave_bytes < (free := self.free_bytes):
                    ballast.write(bytes(min(free - leave_bytes, _CHUNK)))
                while not leave_bytes:
                    ballast.write(bytes(1))
            except OSError:
                return

    def use_up_inodes(self) -> None:
        """Create empty files until that fails."""
        self._ballast.mkdir()
        number = 0
        while True:
            try:
                (self._ballast / str(number)).touch(exist_ok=False)
            except OSError:
                return
            number += 1

    def free(self) -> None:
        """Remove what ``fill`` and ``use_up_inodes`` wrote."""
        if self._ballast.is_dir():
            for file in self._ballast.iterdir():
                file.unlink()
            self._ballast.rmdir()
        else:
            self._ballast.unlink()

    def fail(self) -> None:
        """Make an ext4 read-only as the kernel does after an error of the disk; open files remain open."""
        _run("mount", "-o", "remount,abort", str(self.folder))

    def repair(self) -> None:
        """After ``fail``: mount it anew, as an operator does. Waits for open files to be closed."""
        _run("umount", "--lazy", str(self.folder))
        give_up = time.monotonic() + _BUSY_S
        while True:
            try:
                return self.mount()
            except CannotMount:
                if time.monotonic() > give_up:
                    raise
                time.sleep(_POLL_S)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMount(
            f"{' '.join(command)}: {done.stderr.strip()}; run the tests as root, or under `unshare --user --map-root-user --mount`"
        )
