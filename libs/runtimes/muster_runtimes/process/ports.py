"""Port allocation: one port per replica, kept until the job ends, safe against other instances that allocate at the same time.

A reservation is a symbolic link ``ports/<number> -> <job>/<role>-<index>``, which is created atomically. ``jobs/<job>/ports.json``
lists the ports of a job.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_runtimes.process.state_files import StateDirectory, locked, may_run, replace, safe_name

LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACE = "lo"

_decoder = msgspec.json.Decoder(dict[str, int])


class NoFreePortError(RuntimeError):
    """All ports of the range are reserved or in use."""


class PortAllocator:
    """Allocates and releases ports of ``port_range``."""

    def __init__(self, *, directory: StateDirectory, port_range: range) -> None:
        self._directory = directory
        self._range = port_range

    def allocate(self, job_id: str, replicas: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the port of each (role, index), allocated if it has none. Raises ``NoFreePortError``."""
        job_directory = self._directory.open_job(job_id)
        with locked(job_directory / "ports.lock", wait=True):
            # A release may have been interrupted before it removed the file.
            ports = {
                key: port
                for key, port in self._read(job_directory).items()
                if _holder(self._directory.ports / str(port)) == f"{job_id}/{key}"
            }
            missing = [key for role, index in replicas if (key := _key(role, index)) not in ports]
            try:
                for key in missing:
                    ports[key] = self._reserve(f"{job_id}/{key}")
            finally:
                # Also what was reserved before a failure: the release of the job reads it.
                if missing:
                    replace(job_directory / "ports.json", msgspec.json.encode(ports))
        return {(role, index): ports[_key(role, index)] for role, index in replicas}

    def allocated(self, job_id: str) -> dict[tuple[str, int], int]:
        """Return the allocated ports of a job by (role, index)."""
        ports: dict[tuple[str, int], int] = {}
        for key, port in self._read(self._directory.job(job_id)).items():
            role, _, index = key.rpartition("-")
            ports[role, int(index)] = port
        return ports

    def release(self, job_id: str) -> None:
        """Release the ports of a job."""
        job_directory = self._directory.job(job_id)
        with locked(job_directory / "ports.lock", wait=True):
            for key, port in self._read(job_directory).items():
                entry = self._directory.ports / str(port)
                if _holder(entry) == f"{job_id}/{key}":
                    entry.unlink(missing_ok=True)
            (job_directory / "ports.json").unlink(missing_ok=True)

    def sweep(self) -> None:
        """Release ports that are reserved for jobs that are archived or deleted, in case pod-launcher died before it did so."""
        entries = {entry: _holder(entry).partition("/")[0] for entry in self._directory.ports.iterdir()}
        live = set(self._directory.job_ids())
        for job_id in set(entries.values()) - live - {""}:
            # An older version of pod-launcher with the same root makes no job live.
            if any(may_run(self._directory.replica(run)) for run in self._directory.replicas(job_id)):
                self._directory.make_live(job_id)
                live.add(job_id)
        for entry, job_id in entries.items():
            if job_id and job_id not in live:
                entry.unlink(missing_ok=True)

    def _read(self, job_directory: Path) -> dict[str, int]:
        try:
            return _decoder.decode((job_directory / "ports.json").read_bytes())
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return {}

    def _reserve(self, holder: str) -> int:
        for port in self._candidates(holder):
            entry = self._directory.ports / str(port)
            try:
                entry.symlink_to(holder)
            except FileExistsError:
                # Its own, if pod-launcher died before it wrote ports.json.
                if _holder(entry) == holder:
                    return port
                continue
            if _is_free(port):
                return port
            entry.unlink(missing_ok=True)
        raise NoFreePortError(f"no free port between {self._range.start} and {self._range.stop - 1}")

    def _candidates(self, holder: str) -> Iterator[int]:
        # The digest includes the root, so that the same job under two roots begins at different ports.
        digest = hashlib.blake2b(f"{self._directory.root}/{holder}".encode(), digest_size=8).digest()
        first = int.from_bytes(digest) % len(self._range)
        for offset in range(len(self._range)):
            yield self._range[(first + offset) % len(self._range)]


def _key(role: str, index: int) -> str:
    return f"{safe_name(role)}-{index}"


def _holder(entry: Path) -> str:
    with suppress(OSError):
        return str(entry.readlink())
    return ""


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Like a server, so that a port with connections in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
