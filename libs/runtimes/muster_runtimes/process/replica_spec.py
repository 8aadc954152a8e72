"""From a launch to the ``ReplicaSpec`` that a shim runs, or to the reason why this machine cannot run it; and the framework's files."""

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
from muster_runtimes.process.users import share
from muster_runtimes.protocols import Launch

_INHERITED = ("HOME", "LANG", "TMPDIR")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_SSH_SERVER = "sshd"
_IDLE = ("sleep", "infinity")
_REFERENCE = re.compile(r"\$\$|\$\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\)")


class LaunchRejection(msgspec.Struct, frozen=True):
    """Why a launch cannot run. With an ``exit_code`` the replica has failed; without one, the node rejects it."""

    reason: str
    exit_code: int | None = None


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The user id of a replica, which is its group id, further group ids, and its home directory."""

    user: int
    groups: tuple[int, ...]
    home: Path


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of pod-launcher's environment that every replica inherits.

    The directory of pod-launcher's interpreter comes first on PATH, so that ``python`` is the one that Muster is installed with.
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
    account: Account | None = None,
) -> ReplicaSpec | LaunchRejection:
    """Return what a shim runs for a launch, or why it cannot run.

    Args:
        launch: What to start.
        nodes: The names of the nodes.
        base: The inherited variables.
        workdir: The base of relative working directories.
        log_bytes: How much of the output to keep; 0 for all.
        build: The directory of the build, if any: the default working directory, and its programs come first on PATH.
        progress: The path of the progress file.
        account: What it runs as; None for pod-launcher's own user.
    """
    template = launch.template
    if launch.node not in nodes:
        return LaunchRejection(f"unknown node: {launch.node}")
    if not template.command:
        why = "the process runtime does not run images; add a command"
        return LaunchRejection(
            f"{why} (image {template.image})" if template.image else why, exit_code=CANNOT_RUN
        )
    env = {
        **base,
        **({} if account is None else {"HOME": str(account.home)}),
        **_resolved(launch.env, template.env),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, launch.gpus)),
    }
    if progress is not None:
        env[PROGRESS_VARIABLE] = str(progress)
    in_build = launch.is_build or not template.working_dir
    if build is not None:
        env |= {"MUSTER_BUILD": str(build), "PATH": f"{build}/bin:{env['PATH']}"}
    argv = (*template.command, *template.args)
    if launch.accepts_remote_commands and Path(argv[0]).name == _SSH_SERVER:
        # The command server replaces it, and a replica must not open this machine to the network.
        argv = _IDLE
    return ReplicaSpec(
        name=launch.name,
        node=launch.node,
        argv=tuple(expand(word, env) for word in argv),
        env=env,
        cwd=str(build if build is not None and in_build else workdir / template.working_dir),
        grace_s=template.grace_s,
        log_bytes=log_bytes,
        accepts_remote_commands=launch.accepts_remote_commands,
        generation=launch.generation,
        gpus=launch.gpus,
        requests=template.requests,
        user=0 if account is None else account.user,
        groups=() if account is None else account.groups,
    )


def _resolved(env: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return ``env`` with the references in the template's own values expanded, each from the variables before it."""
    resolved: dict[str, str] = {}
    for name, value in env.items():
        resolved[name] = expand(value, resolved) if own.get(name) == value else value
    return resolved


def expand(word: str, env: Mapping[str, str]) -> str:
    """Expand ``$(NAME)`` as Kubernetes does: unknown names are unchanged, ``$$`` is a dollar sign."""

    def value(found: re.Match[str]) -> str:
        name = found["name"]
        return "$" if name is None else env.get(name, found[0])

    return _REFERENCE.sub(value, word)


_REMOTE_SHELL = Path(__file__).with_name("remote_shell.py")

# Open MPI's daemons stay attached, so that they stay in the process groups of their workers.
_ENV = {"OMPI_MCA_orte_leave_session_attached": "1"}


def write_config(folder: Path, files: Mapping[str, ConfigFile], *, group: int | None = None) -> None:
    """Write ``files``, each atomically, and remove all other files of the directory; ``group`` may read them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if group is not None:
        share(folder, group)
    for name, file in files.items():
        replace(folder / name, file.content, mode=file.mode, group=group)
    for entry in folder.iterdir():
        # A name that begins with a dot is a draft that is being written.
        if entry.name not in files and not entry.name.startswith("."):
            entry.unlink(missing_ok=True)


def remote_shell(job: Path) -> RemoteShell:
    """Return the remote shell of the job with the directory ``job``."""
    command = shlex.join([sys.executable, "-I", "-S", "-X", "utf8", str(_REMOTE_SHELL), str(job)])
    return RemoteShell(script=f'#!/bin/sh\nexec {command} "$@"\n', env=_ENV)
