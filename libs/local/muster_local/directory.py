"""The data directory of `muster up`: its layout, the lock that makes its use exclusive, and its log file."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_local.processes import LocalError

_LOCK_PATIENCE_S = 5.0
_LOCK_LOOK_S = 0.05


class LockHolder(msgspec.Struct, frozen=True):
    """Who holds the lock: its pid and the instant of its start, in clock ticks since the machine's."""

    pid: int
    start: int


class DirectoryInUse(LocalError):
    """Another `muster up` works in this folder; `pid` is its process, None where only its broker is left."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        who = f"by another `muster up` (pid {pid})" if pid else "by the broker of one that has ended"
        super().__init__(f"{directory} is in use {who}: stop it, or choose another folder with --data")
        self.pid = pid


def default_directory(environ: Mapping[str, str]) -> Path:
    """Where state is kept unless said otherwise: `$XDG_STATE_HOME/muster`, else `~/.local/state/muster`."""
    state = environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "muster"


class DataDirectory:
    """The data folder, made on first use and readable only by its owner."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()

    @property
    def broker(self) -> Path:
        """The broker's configuration and store: the events and the records."""
        return self.root / "broker"

    @property
    def replicas(self) -> Path:
        """The root of the process runtime: a folder for every job."""
        return self.root / "replicas"

    @property
    def pod_logs(self) -> Path:
        """What pods wrote that are gone, where replicas are pods."""
        return self.root / "logs"

    @property
    def pool(self) -> str:
        """The name of this folder's pool in a cluster: others may have theirs in the same one."""
        return f"local-{hashlib.blake2b(f'{socket.gethostname()}:{self.root}'.encode(), digest_size=4).hexdigest()}"

    @property
    def traces(self) -> Path:
        """The spans that the trace sink keeps."""
        return self.root / "traces"

    @property
    def ports(self) -> Path:
        """The ports that were drawn, so that a restart keeps them."""
        return self.root / "ports.json"

    @property
    def endpoints(self) -> Path:
        """Where everything can be reached, while it runs."""
        return self.root / "endpoints.json"

    @property
    def log(self) -> Path:
        """What every program wrote, as it wrote it."""
        return self.root / "muster.log"

    def make(self) -> None:
        """Create the folders.

        Raises:
            LocalError: they cannot be created or written to.
        """
        try:
            for path in (self.root, self.broker, self.replicas, self.traces):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"{self.root} cannot be used for data: {error.strerror}") from error
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise LocalError(f"{self.root} cannot be used for data: it is not writable")

    async def lock(self) -> int:
        """Take the folder; returns the descriptor that holds it until it, and every copy of it, is closed.

        The broker inherits the descriptor, so that a store whose broker is still ending is never opened by a second.

        Raises:
            FolderInUse: somebody has it.
        """
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        patience = asyncio.get_running_loop().time() + _LOCK_PATIENCE_S
        while not _locked(descriptor):
            holder = _holder(descriptor)
            alive = holder is not None and start_ticks(holder.pid) == holder.start
            if alive or asyncio.get_running_loop().time() > patience:
                os.close(descriptor)
                raise DirectoryInUse(self.root, holder.pid if alive and holder else None)
            await asyncio.sleep(_LOCK_LOOK_S)
        me = LockHolder(os.getpid(), start_ticks(os.getpid()) or 0)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(me), 0)
        return descriptor

    def wipe(self) -> None:
        """Remove the events, the records, the job folders and the traces; ports stay. The lock must be held."""
        for path in (self.broker, self.replicas, self.pod_logs, self.traces):
            shutil.rmtree(path, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self.make()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file such that a reader sees the old content or the new, never a part."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def start_ticks(pid: int) -> int | None:
    """When a process started: with the pid, its identity. None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(descriptor: int) -> LockHolder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 1024, 0), type=LockHolder)
    except msgspec.DecodeError:
        return None


_LARGEST = 32 << 20


class LogFile:
    """Appends lines to a file; what is older than the last 32 to 64 MiB is dropped, in a second file `*.old`."""

    def __init__(self, path: Path, *, largest: int = _LARGEST) -> None:
        self._path = path
        self._largest = largest
        self._file = path.open("ab", buffering=0)

    def write(self, source: str, raw: bytes) -> None:
        """Append one line of the program `source`; it is lost where the disk is full."""
        with suppress(OSError):
            self._file.write(source.encode() + b" " + raw + b"\n")
            if self._file.tell() > self._largest:
                self._path.replace(self._path.with_name(self._path.name + ".old"))
                self._file.close()
                self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
