"""The file system of the broker's store: what it is short of."""

from __future__ import annotations

import os
from pathlib import Path

MIN_FREE_BYTES = 8 << 20
"""Less is a shortage: the largest message would not fit."""


def shortage(folder: Path) -> str | None:
    """Return what the file system of ``folder`` is short of, for users, or ``None``.

    Full, without inodes, read-only or broken: nothing can be stored in any of these cases. A folder that is not there is no
    shortage: its file system may just be mounted again, and writing shows whether the broker stores something.
    """
    try:
        status = os.statvfs(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"the broker's folder {folder} cannot be read: {error.strerror}"
    if status.f_flag & os.ST_RDONLY:
        return f"the broker's file system is read-only: {folder}"
    free = status.f_bavail * status.f_frsize
    if free < MIN_FREE_BYTES:
        return f"the broker's disk is full: {free} bytes free in {folder}, {MIN_FREE_BYTES} needed"
    # File systems without a fixed number of inodes report none at all.
    if status.f_files and not status.f_favail:
        return f"the broker's disk has no inodes left in {folder}: remove files"
    return None
