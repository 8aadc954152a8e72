"""The lock that keeps pod-launchers in different PID namespaces from using one state directory.

The state on disk names processes by their ids, which mean nothing in another PID namespace: a pod-launcher in a second container with the
same volume would take the running replicas of the first for lost. Instances in one namespace share the directory.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from muster_runtimes.process.processes import boot_id
from muster_runtimes.process.state_files import is_locked, locked

_FOLDER = "namespaces"
_GUARD = ".lock"


class NamespaceInUseError(RuntimeError):
    """A pod-launcher in another PID namespace uses the state directory; the message says what to do."""


def pid_namespace() -> str:
    """Return the identity of this process's PID namespace, unique among those of all machines that exist now."""
    return f"{boot_id()}.{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 (follows the link of procfs)


class NamespaceLock:
    """Holds the state directory ``root`` for the PID namespace ``namespace`` until it is released or the process ends.

    Raises:
        NamespaceInUseError: An instance in another namespace holds it.
    """

    def __init__(self, root: Path, *, namespace: str) -> None:
        folder = root / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        self._descriptor = -1
        with locked(folder / _GUARD, wait=True):
            for path in folder.iterdir():
                if path.name in {_GUARD, namespace}:
                    continue
                if is_locked(path):
                    raise NamespaceInUseError(
                        f"a pod-launcher in another container (PID namespace) uses {root}, and neither sees the replicas of the other; "
                        "run one pod-launcher for each volume, or give each a directory and a pool of its own"
                    )
                path.unlink(missing_ok=True)
            self._descriptor = os.open(folder / namespace, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH)

    def release(self) -> None:
        """Release the lock; repeated calls have no effect."""
        descriptor, self._descriptor = self._descriptor, -1
        with suppress(OSError):
            os.close(descriptor)
