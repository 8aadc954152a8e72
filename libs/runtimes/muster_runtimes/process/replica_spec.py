"""DOC."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from muster_core.frameworks import ConfigFile, RemoteShell
from muster_runtimes.process.logs import PROGRESS_VARIABLE
from muster_runtimes.process.shim import CANNOT_RUN
from muster_runtimes.process.state_files import ReplicaSpec, replace
from muster_runtimes.protocols import Launch

_INHERITED = ("HOME", "LANG", "TMPDIR")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_SSH_SERVER = "sshd"
_KEEP_STILL = ("sleep", "infinity")
_REFERENCE = re.compile(r"\$\$|\$\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\)")


class LaunchRejection(msgspec.Struct, frozen=True):
    """Why a launch cannot be run. With an ``exit_code`` it is the replica that failed; without, the node refuses it."""

    reason: str
    exit_code: int | None = None


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every replica gets of the launcher's own environment.

    The launcher's interpreter comes first on PATH, so that ``python`` is the one that Muster was installed with.
    """
    base = {name: environ[name] for name in _INHERITED if name in environ}
    base["PATH"] = f"{Path(sys.executable).parent}:{environ.get('PATH') or _DEFAULT_PATH}"
    return base


def make_spec(
    launch: Launch,
    *,
    nodes: Container[str],
    base: Mapping[str, str],
    workdir: Path,
    log_bytes: int,
    build: Path | None = None,
    progress: Path | None = None,
) -> ReplicaSpec | LaunchRejection:
    """What to run for ``launch`` on one of ``nodes``; a relative working directory starts at ``workdir``.

    Where there is a ``build``, its folder is the working directory of a replica that names none, and its programs come first on PATH.
    ``progress`` is where it may write how far it is.
    """
    template = launch.template
    if launch.node not in nodes:
        return LaunchRejection(f"unknown node: {launch.node}")
    if not template.command:
        words = "the process runtime runs no images: give a command"
        return LaunchRejection(
            f"{words} (image {template.image})" if template.image else words, exit_code=CANNOT_RUN
        )
    env = {
        **base,
        **_resolved(launch.env, template.env),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, launch.gpus)),
    }
    if progress is not None:
        env[PROGRESS_VARIABLE] = str(progress)
    at_home = launch.is_build or not template.working_dir
    if build is not None:
        env |= {"MUSTER_BUILD": str(build), "PATH": f"{build}/bin:{env['PATH']}"}
    words = (*template.command, *template.args)
    if launch.takes_commands and Path(words[0]).name == _SSH_SERVER:
        # Its part is the attendant's, and no replica opens a door of this machine to the network.
        words = _KEEP_STILL
    return ReplicaSpec(
        name=launch.name,
        node=launch.node,
        argv=tuple(expand(word, env) for word in words),
        env=env,
        cwd=str(build if build is not None and at_home else workdir / template.working_dir),
        grace_s=template.grace_s,
        log_bytes=log_bytes,
        takes_commands=launch.takes_commands,
    )


def _resolved(env: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """``env`` with the references in the template's own values replaced, each by what comes before it."""
    resolved: dict[str, str] = {}
    for name, value in env.items():
        resolved[name] = expand(value, resolved) if own.get(name) == value else value
    return resolved


def expand(word: str, env: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced as Kubernetes does: unknown names stay as they are, ``$$`` is a dollar sign."""

    def value(found: re.Match[str]) -> str:
        name = found["name"]
        return "$" if name is None else env.get(name, found[0])

    return _REFERENCE.sub(value, word)


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
