"""The data folder of `muster up`: what lies where, and the lock that gives it to one at a time."""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from muster_local.program import LocalError

_LOCK_PATIENCE_S = 5.0
_LOCK_LOOK_S = 0.05


class Holder(msgspec.Struct, frozen=True):
    """Who holds the lock: its pid and the instant of its start, in clock ticks since the machine's."""

    pid: int
    start: int


class FolderInUse(LocalError):
    """Another `muster up` works in this folder; `pid` is its process, None where only its broker is left."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        who = f"by another `muster up` (pid {pid})" if pid else "by the broker of one that has ended"
        super().__init__(f"{folder} is in use {who}: stop it, or choose another folder with --data")
        self.pid = pid


def default_folder(environ: Mapping[str, str]) -> Path:
    """Where state is kept unless said otherwise: `$XDG_STATE_HOME/muster`, else `~/.local/state/muster`."""
    state = environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state else Path.home() / ".local" / "state") / "muster"


class Folder:
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
                raise FolderInUse(self.root, holder.pid if alive and holder else None)
            await asyncio.sleep(_LOCK_LOOK_S)
        me = Holder(os.getpid(), start_ticks(os.getpid()) or 0)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(me), 0)
        return descriptor

    def wipe(self) -> None:
        """Remove the events, the records, the job folders and the traces; ports stay. The lock must be held."""
        for path in (self.broker, self.replicas, self.pod_logs, self.traces):
            shutil.rmtree(path, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        self.make()


def write_whole(path: Path, content: bytes) -> None:
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


def _holder(descriptor: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, 1024, 0), type=Holder)
    except msgspec.DecodeError:
        return None
