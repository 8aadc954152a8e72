"""A complete system for one group of measurements: fresh, on disk, with everything that production runs."""

import os
import shutil
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from muster_local import LocalOptions, LocalSystem, read_endpoints

_NODES = ("n1:cpu=4,memory=8Gi", "n2:cpu=4,memory=8Gi")
_FAST_TO_FAKE = frozenset({"tmpfs", "ramfs"})


class NoDisk(Exception):
    """There is no folder on a disk to measure on."""


@contextmanager
def fresh_folder(root: Path) -> Generator[Path]:
    """Create an empty folder under `root`, removed afterwards.

    Raises:
        NoDisk: `root` is in memory, where a durable write costs nothing.
    """
    kind = _filesystem(root)
    if kind in _FAST_TO_FAKE:
        raise NoDisk(f"{root} is a {kind}: choose a folder on a disk with --data")
    folder = Path(tempfile.mkdtemp(prefix="muster-bench-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def running_system(root: Path, *, idle_period_s: float = 60.0) -> AsyncGenerator[LocalSystem]:
    """Start a system with an empty store and remove it afterwards.

    Its two nodes are virtual, so that placement does not depend on the machine. Spans go to the sink, as for users.
    """
    with fresh_folder(root) as folder:
        options = LocalOptions(nodes=_NODES, idle_period_s=idle_period_s, workdir=folder)
        system = LocalSystem(folder / "data", options)
        try:
            async with system:
                yield system
        finally:
            await system.end_replicas()


def pids_of(system: LocalSystem) -> dict[str, int]:
    """Return the processes of a running system by name: services, broker and sink.

    Raises:
        LookupError: the system does not run.
    """
    endpoints = read_endpoints(system.directory.endpoints)
    if endpoints is None or endpoints.broker_pid is None or endpoints.sink_pid is None:
        raise LookupError("the system does not run")
    return {**system.services, "broker": endpoints.broker_pid, "sink": endpoints.sink_pid}


def _filesystem(folder: Path) -> str:
    """Return the type of the file system that holds `folder`: that of the longest mount point above it."""
    path = os.path.realpath(folder)
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, name, *_ = line.split()
        above = mount in ("/", path) or path.startswith(f"{mount}/")
        if above and len(mount) >= len(best):
            best, kind = mount, name
    return kind
