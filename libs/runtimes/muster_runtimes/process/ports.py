"""A port of its own for every replica, kept for the job's life, on a machine where others draw ports too.

A reservation is a symbolic link ``ports/<number> -> <job>/<role>-<index>``: made or refused in one step, whoever else draws at the
same moment. ``jobs/<job>/ports.json`` remembers what a job has drawn.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from muster_runtimes.process.state_files import StateDirectory, locked, replace, safe_name

LOOPBACK = "127.0.0.1"
LOOPBACK_INTERFACE = "lo"

_decoder = msgspec.json.Decoder(dict[str, int])


class NoFreePortError(RuntimeError):
    """Every port of the range is reserved or in use."""


class PortAllocator:
    """Draws, remembers and releases ports of ``span``."""

    def __init__(self, *, layout: StateDirectory, span: range) -> None:
        self._layout = layout
        self._span = span

    def draw(self, job_id: str, replicas: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The port of each (role, index): the one that it has, else a new one. Raises ``NoFreePortError``."""
        folder = self._layout.job(job_id)
        folder.mkdir(mode=0o700, exist_ok=True)
        with locked(folder / "ports.lock", wait=True):
            drawn = self._drawn(folder)
            missing = [key for role, index in replicas if (key := _key(role, index)) not in drawn]
            for key in missing:
                drawn[key] = self._reserve(f"{job_id}/{key}")
            if missing:
                replace(folder / "ports.json", msgspec.json.encode(drawn))
        return {(role, index): drawn[_key(role, index)] for role, index in replicas}

    def known(self, job_id: str) -> dict[tuple[str, int], int]:
        """What the job has drawn so far."""
        drawn: dict[tuple[str, int], int] = {}
        for key, port in self._drawn(self._layout.job(job_id)).items():
            role, _, index = key.rpartition("-")
            drawn[role, int(index)] = port
        return drawn

    def release(self, job_id: str) -> None:
        """Give back every port of the job."""
        for entry in self._layout.ports.iterdir():
            if _holder(entry).startswith(f"{job_id}/"):
                entry.unlink(missing_ok=True)

    def _drawn(self, folder: Path) -> dict[str, int]:
        try:
            return _decoder.decode((folder / "ports.json").read_bytes())
        except FileNotFoundError:
            return {}

    def _reserve(self, holder: str) -> int:
        for port in self._candidates(holder):
            entry = self._layout.ports / str(port)
            try:
                entry.symlink_to(holder)
            except FileExistsError:
                # Its own, where a launcher died between the reservation and ports.json.
                if _holder(entry) == holder:
                    return port
                continue
            if _free(port):
                return port
            entry.unlink(missing_ok=True)
        raise NoFreePortError(f"no port left between {self._span.start} and {self._span.stop - 1}")

    def _candidates(self, holder: str) -> Iterator[int]:
        # Roots know nothing of one another: the same job under two of them should not begin at the same port.
        digest = hashlib.blake2b(f"{self._layout.root}/{holder}".encode(), digest_size=8).digest()
        first = int.from_bytes(digest) % len(self._span)
        for offset in range(len(self._span)):
            yield self._span[(first + offset) % len(self._span)]


def _key(role: str, index: int) -> str:
    return f"{safe_name(role)}-{index}"


def _holder(entry: Path) -> str:
    with suppress(OSError):
        return str(entry.readlink())
    return ""


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do, so that a port whose last connections still linger counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
