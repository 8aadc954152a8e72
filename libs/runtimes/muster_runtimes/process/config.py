"""The files that a framework's replicas read (a hostfile and the like), in a folder of the job that is replaced file by file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from muster_core.frameworks import ConfigFile, RemoteShell
from muster_runtimes.process.records import replace

_CALLER = Path(__file__).with_name("remote_shell.py")

# The launcher's sessions stay attached to the workers' daemons, so that these stay in their workers' process groups.
_ENV = {"OMPI_MCA_orte_leave_session_attached": "1"}


def write_config(folder: Path, files: Mapping[str, ConfigFile]) -> None:
    """Write ``files``, each atomically, and remove what is not among them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, file in files.items():
        replace(folder / name, file.content, mode=file.mode)
    for entry in folder.iterdir():
        # Names that begin with a dot are drafts of this very moment.
        if entry.name not in files and not entry.name.startswith("."):
            entry.unlink(missing_ok=True)


def remote_shell(job: Path) -> RemoteShell:
    """How replicas of the job in the folder ``job`` run commands in one another."""
    caller = shlex.join([sys.executable, "-I", "-S", "-X", "utf8", str(_CALLER), str(job)])
    return RemoteShell(script=f'#!/bin/sh\nexec {caller} "$@"\n', env=_ENV)
