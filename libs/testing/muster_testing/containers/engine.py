"""A Docker engine: a given one, or one of this machine that ends with the tests.

An engine that the tests start needs root and Debian's ``docker.io``. It runs in PID and mount namespaces of its own, so that nothing of it
outlives its end, and changes neither the packet filter nor the routes of the machine.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from muster_testing.cluster.program import ChildProgram, run_in_new_loop
from muster_testing.go_programs import find_installed, first_program

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_LAST_CLIENT_WITH_BUILDKIT = 22
_PROGRAMS = ("dockerd", "containerd", "runc", "unshare")


class EngineError(Exception):
    """A command of the engine failed; the message has its output."""


class Engine:
    """The commands of an engine at ``host``, such as ``unix:///run/docker.sock``."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._client = _client()

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of programs that use the engine."""
        return {**os.environ, "DOCKER_HOST": self.host, "DOCKER": str(self._client), "DOCKER_BUILDKIT": "1"}

    def run(self, *arguments: str | Path, stdin: Path | None = None) -> str:
        """Run the Docker client, with a file as its input, and return what it prints. Raises ``EngineError``."""
        return self._call(*arguments, stdin=stdin).stdout

    def logs(self, container: str) -> str:
        """Return what a container has written to its standard output, then to its standard error."""
        done = self._call("logs", container)
        return done.stdout + done.stderr

    def inspect(self, thing: str) -> dict[str, object]:
        """Return what the engine knows of an image or a container."""
        return cast("list[dict[str, object]]", json.loads(self.run("inspect", thing)))[0]

    def has_image(self, name: str) -> bool:
        """Whether the engine has an image."""
        try:
            self.inspect(name)
        except EngineError:
            return False
        return True

    def image_bytes(self, name: str) -> int:
        """Return the size of an image's files."""
        return cast("int", self.inspect(name)["Size"])

    def health(self, container: str) -> str:
        """Return the state of a container's health check, or its exit code if it has ended."""
        state = cast("dict[str, object]", self.inspect(container)["State"])
        if not state["Running"]:
            return f"exited with {state['ExitCode']}"
        return cast("dict[str, str]", state.get("Health", {})).get("Status", "none")

    def _call(self, *arguments: str | Path, stdin: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(self._client), *map(str, arguments)]
        with Path(stdin or os.devnull).open("rb") as source:
            done = subprocess.run(
                command, stdin=source, capture_output=True, text=True, check=False, env=self.environment
            )
        if done.returncode != 0:
            raise EngineError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done


class LocalEngine:
    """An engine that is started in ``folder`` and ends with the tests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / "docker.sock"
        arguments = (
            *("--data-root", str(folder / "data"), "--exec-root", str(folder / "exec")),
            *("--pidfile", str(folder / "dockerd.pid"), "--host", f"unix://{self._socket}"),
            *(
                "--bridge",
                "none",
                "--iptables=false",
                "--ip6tables=false",
                "--ip-forward=false",
                "--ip-masq=false",
            ),
            *("--config-file", str(folder / "none.json")),
        )
        unshare = str(find_installed("unshare"))
        namespaces = ("--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL")
        self._program = ChildProgram(
            "dockerd", [unshare, *namespaces, str(find_installed("dockerd")), *arguments], folder=folder
        )

    def __enter__(self) -> Engine:
        (self._folder / "none.json").write_text("{}")
        self._program.start()
        run_in_new_loop(self._program.until(self._answers, timeout_s=_START_TIMEOUT_S))
        return Engine(f"unix://{self._socket}")

    def __exit__(self, *error: object) -> None:
        # unshare does not forward signals; its only child is dockerd, which removes containers and networks in order.
        for pid in _children(self._program.pid):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while self._program.pid is not None and time.monotonic() < deadline:
            time.sleep(0.1)
        self._program.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _answers(self) -> bool:
        return self._socket.exists() and _is_engine(f"unix://{self._socket}")


def given_engine() -> Engine | None:
    """Return the engine of ``DOCKER_HOST``, or the system's; None if there is none."""
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    return Engine(host) if first_client() is not None and _is_engine(host) else None


def obstacle() -> str:
    """Return why no engine can be used or started; empty if one can."""
    if first_client() is None:
        return "no Docker client that can build images: install docker.io, or buildx"
    if given_engine() is not None:
        return ""
    if os.geteuid() != 0:
        return "no Docker engine, and starting one needs root"
    missing = [name for name in _PROGRAMS if find_installed(name) is None]
    return f"no Docker engine, and {', '.join(missing)} not installed: install docker.io" if missing else ""


def first_client() -> Path | None:
    """Return a Docker client that can build with BuildKit: one with buildx, or of the last versions with one built in."""
    candidates = (first_program([Path("/usr/bin/docker")]), find_installed("docker"))
    return next((client for client in candidates if client is not None and _can_build(client)), None)


def _client() -> Path:
    client = first_client()
    if client is None:
        raise EngineError(obstacle())
    return client


def _can_build(client: Path) -> bool:
    if _succeeds([str(client), "buildx", "version"]):
        return True
    version = subprocess.run([client, "--version"], capture_output=True, text=True, check=False).stdout
    _, _, number = version.partition("version ")
    major = number.partition(".")[0]
    return major.isdecimal() and int(major) <= _LAST_CLIENT_WITH_BUILDKIT


def _is_engine(host: str) -> bool:
    client = first_client()
    return client is not None and _succeeds([str(client), "--host", host, "version"])


def _succeeds(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _children(pid: int | None) -> list[int]:
    if pid is None:
        return []
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
