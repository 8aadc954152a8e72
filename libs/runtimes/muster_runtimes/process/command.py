"""From a launch to what a shim runs, or to the reason why it cannot be run here."""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Mapping
from pathlib import Path

import msgspec

from muster_runtimes.ports import Launch
from muster_runtimes.process.progress import VARIABLE as PROGRESS_FILE
from muster_runtimes.process.records import Spec
from muster_runtimes.process.shim import CANNOT_RUN

_INHERITED = ("HOME", "LANG", "TMPDIR")
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_SSH_SERVER = "sshd"
_KEEP_STILL = ("sleep", "infinity")
_REFERENCE = re.compile(r"\$\$|\$\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\)")


class Refusal(msgspec.Struct, frozen=True):
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


def specify(
    launch: Launch,
    *,
    nodes: Container[str],
    base: Mapping[str, str],
    workdir: Path,
    log_bytes: int,
    build: Path | None = None,
    progress: Path | None = None,
) -> Spec | Refusal:
    """What to run for ``launch`` on one of ``nodes``; a relative working directory starts at ``workdir``.

    Where there is a ``build``, its folder is the working directory of a replica that names none, and its programs come first on PATH.
    ``progress`` is where it may write how far it is.
    """
    template = launch.template
    if launch.node not in nodes:
        return Refusal(f"unknown node: {launch.node}")
    if not template.command:
        words = "the process runtime runs no images: give a command"
        return Refusal(f"{words} (image {template.image})" if template.image else words, exit_code=CANNOT_RUN)
    env = {
        **base,
        **_resolved(launch.env, template.env),
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, launch.gpus)),
    }
    if progress is not None:
        env[PROGRESS_FILE] = str(progress)
    at_home = launch.is_build or not template.working_dir
    if build is not None:
        env |= {"MUSTER_BUILD": str(build), "PATH": f"{build}/bin:{env['PATH']}"}
    words = (*template.command, *template.args)
    if launch.takes_commands and Path(words[0]).name == _SSH_SERVER:
        # Its part is the attendant's, and no replica opens a door of this machine to the network.
        words = _KEEP_STILL
    return Spec(
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
