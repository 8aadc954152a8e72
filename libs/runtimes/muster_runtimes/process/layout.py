"""Where everything of the process runtime lies under its root, and the guard that nothing lies elsewhere.

``jobs/<job>/<attempt>/<role>-<index>.<restart>/`` holds one run of one replica, ``builds/<job>/`` what a build makes, ``ports/<number>``
the reserved ports and ``trash/`` what is being removed. Every name is checked before it becomes part of a path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from muster_runtimes.ports import ReplicaId

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LEAF = re.compile(r"(?P<role>.+)-(?P<index>\d+)\.(?P<restart>\d+)")


class UnsafeNameError(ValueError):
    """A name that must not become part of a path."""


class Layout(msgspec.Struct, frozen=True):
    """The paths under ``root``, which is absolute. Methods raise ``UnsafeNameError`` for names that could leave it."""

    root: Path

    @property
    def jobs(self) -> Path:
        """One folder for each job."""
        return self.root / "jobs"

    @property
    def ports(self) -> Path:
        """One entry for each reserved port."""
        return self.root / "ports"

    @property
    def builds(self) -> Path:
        """One folder for each build."""
        return self.root / "builds"

    @property
    def trash(self) -> Path:
        """Folders of forgotten jobs on their way out."""
        return self.root / "trash"

    def prepare(self) -> None:
        """Create the folders, for their owner alone: environments may hold secrets."""
        for folder in (self.root, self.jobs, self.builds, self.ports, self.trash):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def job(self, job_id: str) -> Path:
        """The folder of a job."""
        return self.jobs / safe_name(job_id)

    def build(self, job_id: str) -> Path:
        """The folder that a build runs in."""
        return self.builds / safe_name(job_id)

    def members(self, job_id: str) -> Path:
        """The membership file of a job."""
        return self.job(job_id) / "members.json"

    def config(self, job_id: str) -> Path:
        """The folder of the files that a framework's replicas read."""
        return self.job(job_id) / "config"

    def replica(self, replica: ReplicaId) -> Path:
        """The folder of one run of a replica."""
        if min(replica.attempt, replica.index, replica.restart) < 0:
            raise UnsafeNameError(f"negative number in {replica}")
        leaf = f"{safe_name(replica.role)}-{replica.index}.{replica.restart}"
        return self.job(replica.job_id) / str(replica.attempt) / leaf

    def progress(self, replica: ReplicaId) -> Path:
        """Where one run of a replica says how far it is."""
        return self.replica(replica) / "progress.json"

    def name(self, replica: ReplicaId) -> str:
        """The replica's folder relative to the root."""
        return str(self.replica(replica).relative_to(self.root))

    def replica_at(self, name: str) -> ReplicaId | None:
        """The reverse of ``name``; None where the folder is not a replica's."""
        match Path(name).parts:
            case ("jobs", job_id, attempt, leaf) if attempt.isdecimal() and (found := _LEAF.fullmatch(leaf)):
                return ReplicaId(
                    job_id=job_id,
                    attempt=int(attempt),
                    role=found["role"],
                    index=int(found["index"]),
                    restart=int(found["restart"]),
                )
            case _:
                return None

    def job_ids(self) -> Iterator[str]:
        """Every job that has a folder."""
        yield from (folder.name for folder in _folders(self.jobs))

    def replicas(self, job_id: str) -> Iterator[ReplicaId]:
        """Every run of every replica of a job that has a folder."""
        for attempt in _folders(self.job(job_id)):
            if not attempt.name.isdecimal():
                continue
            for folder in _folders(attempt):
                replica = self.replica_at(str(folder.relative_to(self.root)))
                if replica is not None:
                    yield replica


def safe_name(token: str) -> str:
    """``token``, which cannot lead anywhere as a part of a path. Raises ``UnsafeNameError``."""
    if not _TOKEN.fullmatch(token):
        raise UnsafeNameError(f"{token!r} is not a name: letters, digits, '.', '_' and '-', no more than 128")
    return token


def _folders(parent: Path) -> list[Path]:
    try:
        return [child for child in parent.iterdir() if child.is_dir()]
    except FileNotFoundError:
        return []
