"""A user id for each job, so that replicas can read neither pod-launcher's memory and environment nor the files of other jobs.

Without user ids replicas run as pod-launcher's own user. With them pod-launcher is root with a few capabilities, the directory of a job
and its runs belong to root, with the job's id as the group that may read them, and a run has a directory that its replica may write.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

READABLE = 0o750
PRIVATE = 0o700

#: What pod-launcher needs beyond being root, by the bits of ``CapEff`` in ``/proc/self/status`` (capabilities(7)).
_CAPABILITIES = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7}
_RANGE = re.compile(r"(\d+)-(\d+)")


class UserIdsError(ValueError):
    """User ids cannot be used; the message says why."""


def parse_user_ids(text: str) -> range | None:
    """Return the range ``first-last``; None if the text is empty. Raises ``UserIdsError``."""
    if not text.strip():
        return None
    found = _RANGE.fullmatch(text.strip())
    ids = range(int(found[1]), int(found[2]) + 1) if found else range(0)
    if not ids or ids.start == 0:
        raise UserIdsError(f"{text!r} is not a range of user ids above 0, such as 20000-59999")
    return ids


def require_capabilities(status: str) -> None:
    """Check that a process with this ``/proc/PID/status`` can run others under user ids. Raises ``UserIdsError``."""
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    bits = int(effective[1], 16) if effective else 0
    missing = [name for name, bit in _CAPABILITIES.items() if not bits >> bit & 1]
    if missing:
        raise UserIdsError(
            f"replicas under user ids of their own need the capabilities {', '.join(missing)}: "
            "run pod-launcher as root, in a container with cap_add"
        )


class JobUsers:
    """Allocates the ids of ``ids`` to jobs. ``folder`` has a link for each allocated one, which names its job."""

    def __init__(self, folder: Path, ids: range) -> None:
        self._folder = folder
        self._ids = ids

    def prepare(self, *readable: Path) -> None:
        """Create the directory of the links, and let all users enter ``readable``, but not list them."""
        self._folder.mkdir(mode=PRIVATE, exist_ok=True)
        for folder in readable:
            folder.chmod(0o711)

    def of(self, job: Path) -> int | None:
        """Return the id of the job with this directory; None if it has none, because it is older than the setting."""
        with suppress(FileNotFoundError):
            if (group := job.stat().st_gid) in self._ids:
                return group
        return None

    def give(self, job: Path) -> int:
        """Allocate an id to the job with this directory, if it has none, and return it. Raises ``UserIdsError`` if all are taken."""
        user = self.of(job)
        if user is None:
            user = self._reserve(job.name)
            share(job, user)
        return user

    def release(self, job_id: str, user: int | None) -> None:
        """Release the id of a job whose directory is gone."""
        if user is not None and self._holder(user) == job_id:
            (self._folder / str(user)).unlink(missing_ok=True)

    def sweep(self, jobs: Container[str]) -> None:
        """Release the ids of all jobs but ``jobs``, in case pod-launcher died before it did so."""
        for entry in self._folder.iterdir():
            if entry.name.isdecimal() and self._holder(int(entry.name)) not in jobs:
                entry.unlink(missing_ok=True)

    def _reserve(self, job_id: str) -> int:
        first = int.from_bytes(hashlib.blake2b(job_id.encode(), digest_size=8).digest()) % len(self._ids)
        for offset in range(len(self._ids)):
            user = self._ids[(first + offset) % len(self._ids)]
            try:
                (self._folder / str(user)).symlink_to(job_id)
            except FileExistsError:
                # Its own, if pod-launcher died before it changed the directory.
                if self._holder(user) != job_id:
                    continue
            return user
        raise UserIdsError(f"no user id between {self._ids.start} and {self._ids.stop - 1} is free")

    def _holder(self, user: int) -> str:
        with suppress(OSError):
            return (self._folder / str(user)).readlink().name
        return ""


def share(folder: Path, user: int) -> None:
    """Let a user's group read and enter a directory."""
    os.chown(folder, -1, user)
    folder.chmod(READABLE)


def hand_over(folder: Path, user: int, *, mode: int = PRIVATE) -> None:
    """Make a directory a user's own."""
    os.chown(folder, user, user)
    folder.chmod(mode)
