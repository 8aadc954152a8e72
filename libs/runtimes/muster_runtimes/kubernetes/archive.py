"""What replicas wrote, kept after their pods have gone: one file for each run, until the job is forgotten.

A node keeps a container's log as long as its pod. So it is copied when the container has ended and before the pod may go.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from muster_runtimes.ports import ReplicaId

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class Archive:
    """Files under ``root``, at most ``most_bytes`` of each log: the newest. With 0 nothing is kept."""

    def __init__(self, *, root: Path, most_bytes: int) -> None:
        self._root = root
        self._half = most_bytes // 2
        if self._half:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)

    @property
    def keeps(self) -> bool:
        """Whether anything is kept."""
        return self._half > 0

    def path(self, replica: ReplicaId) -> Path:
        """Where the log of a run is, or would be. Raises ``ValueError`` for names that could lead elsewhere."""
        for name in (replica.job_id, replica.role):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not a name")
        leaf = f"{replica.attempt}.{replica.role}-{replica.index}.{replica.restart}.log"
        return self._root / replica.job_id / leaf

    def has(self, replica: ReplicaId) -> bool:
        """Whether the log of a run is here, as a whole."""
        return self.keeps and self.path(replica).exists()

    async def keep(self, replica: ReplicaId, chunks: AsyncIterator[bytes]) -> None:
        """Keep a log; it is here once all of it is."""
        path = self.path(replica)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft, older = path.with_suffix(".draft"), path.with_suffix(".older")
        older.unlink(missing_ok=True)
        file = draft.open("wb")
        try:
            async for chunk in chunks:
                if file.tell() + len(chunk) > self._half and file.tell():
                    file.close()
                    draft.replace(older)
                    file = draft.open("wb")
                file.write(chunk)
        finally:
            file.close()
        await asyncio.to_thread(_join, older, draft, path)

    async def forget(self, job_id: str) -> None:
        """Remove the logs of a job."""
        if self.keeps and _NAME.fullmatch(job_id):
            await asyncio.to_thread(shutil.rmtree, self._root / job_id, ignore_errors=True)


def _join(older: Path, newer: Path, path: Path) -> None:
    if older.exists():
        with older.open("ab") as file, newer.open("rb") as rest:
            _copy(rest, file)
        newer.unlink()
        older.replace(path)
    else:
        newer.replace(path)


def _copy(source: BinaryIO, target: BinaryIO) -> None:
    shutil.copyfileobj(source, target)
