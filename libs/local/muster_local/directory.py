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

_LOCK_TIMEOUT_S = 5.0
_LOCK_POLL_S = 0.05


class LockHolder(msgspec.Struct, frozen=True):
    """The process that holds the lock: its pid, and its start time in clock ticks since boot."""

    pid: int
    start: int


class DirectoryInUse(LocalError):
    """Another `muster up` uses this directory. `pid` is its process, None if only its broker is left."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        who = (
            f"by another `muster up` (pid {pid})" if pid else "by the broker of a `muster up` that has ended"
        )
        super().__init__(f"{directory} is in use {who}: stop it, or choose another directory with --data")
        self.pid = pid


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the default data directory: `$XDG_STATE_HOME/muster`, or `~/.local/state/muster`."""
    state = environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "muster"


class DataDirectory:
    """The data directory, created on first use and readable only by its owner."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().absolute()
        #: The broker's configuration and its store of events and job records.
        self.broker = self.root / "broker"
        #: The store alone.
        self.store = self.broker / "store"
        #: The root of the process runtime, with a directory for every job.
        self.replicas = self.root / "replicas"
        #: The logs of removed pods, with the Kubernetes runtime.
        self.pod_logs = self.root / "logs"
        #: The spans of the trace sink.
        self.traces = self.root / "traces"
        #: The assigned ports.
        self.ports = self.root / "ports.json"
        #: The addresses of the running system.
        self.endpoints = self.root / "endpoints.json"
        #: The unparsed output of all programs.
        self.log = self.root / "muster.log"

    @property
    def pool(self) -> str:
        """The name of this directory's pool in a cluster, which several data directories may share."""
        key = f"{socket.gethostname()}:{self.root}"
        return f"local-{hashlib.blake2b(key.encode(), digest_size=4).hexdigest()}"

    def make(self) -> None:
        """Create the directories.

        Raises:
            LocalError: they cannot be created or are not writable.
        """
        try:
            for path in (self.root, self.broker, self.replicas, self.traces):
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"cannot use {self.root} as data directory: {error.strerror}") from error
        if not os.access(self.root, os.W_OK | os.X_OK):
            raise LocalError(f"cannot use {self.root} as data directory: it is not writable")

    async def lock(self) -> int:
        """Lock the directory; return the descriptor, which holds the lock until all its duplicates are closed.

        The broker inherits the descriptor, so that a second broker cannot open the store while the first one ends.

        Raises:
            DirectoryInUse: another `muster up` holds the lock.
        """
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = asyncio.get_running_loop().time() + _LOCK_TIMEOUT_S
        while not _locked(descriptor):
            holder = _holder(descriptor)
            alive = holder is not None and start_ticks(holder.pid) == holder.start
            if alive or asyncio.get_running_loop().time() > deadline:
                os.close(descriptor)
                raise DirectoryInUse(self.root, holder.pid if alive and holder else None)
            await asyncio.sleep(_LOCK_POLL_S)
        me = LockHolder(os.getpid(), start_ticks(os.getpid()) or 0)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(me), 0)
        return descriptor

    def wipe(self) -> None:
        """Remove events, job records, job directories and traces, but not the ports. The caller holds the lock."""
        for path in (self.broker, self.replicas, self.pod_logs, self.traces):
            shutil.rmtree(path, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self.make()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file atomically: a reader sees either the old or the new content, also after a power cut."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
        raise


def start_ticks(pid: int) -> int | None:
    """Return the start time of a process, which with the pid identifies it; None if there is no such process."""
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
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


_LARGEST = 32 << 20


class LogFile:
    """Appends lines to a file, and rotates it to `*.old` at 32 MiB, replacing the previous `*.old`."""

    def __init__(self, path: Path, *, largest: int = _LARGEST) -> None:
        self._path = path
        self._largest = largest
        self._file = path.open("ab", buffering=0)

    def write(self, source: str, raw: bytes) -> None:
        """Append one line of the program `source`; the line is lost if the disk is full."""
        with suppress(OSError):
            self._file.write(source.encode() + b" " + raw + b"\n")
            if self._file.tell() > self._largest:
                self._path.replace(self._path.with_name(self._path.name + ".old"))
                self._file.close()
                self._file = self._path.open("ab", buffering=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
