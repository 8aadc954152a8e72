"""Keeps a room for a real node, and gives everything back when the test process lets go of it or is gone.

The room has process, mount and control group namespaces of its own, so that one kill ends all that runs in it, and its mounts
go with it. What namespaces cannot hold is undone here: the bridge of its pods, the control groups, kernel settings that a kubelet
changes for the whole machine, and the images on the disk. The test process holds the other end of the standard input; its end,
even by SIGKILL, is read here as the end of the file.

    python -I -S caretaker.py PLAN.json
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

_PATIENCE_S = 15.0
_POLL_S = 0.05
_KERNEL_SETTINGS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward"),
)
_CPUSET = ("cpuset.cpus", "cpuset.mems")


def main(plan_file: Path) -> int:
    """Keep the room of this plan until the standard input ends; returns the room's exit code where it ended by itself."""
    plan: dict[str, str] = json.loads(plan_file.read_text())
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, Path(plan["folder"]) / "containerd", ignore_errors=True)
        stack.enter_context(_kernel_settings())
        stack.enter_context(_bridge(plan["bridge"], plan["address"]))
        stack.enter_context(_control_groups(plan["name"]))
        room = stack.enter_context(_room(plan_file))
        ended = os.pidfd_open(room.pid)
        stack.callback(os.close, ended)
        readable, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
        return (room.wait() or 1) if ended in readable else 0


def _leave(number: int, frame: object) -> None:
    """Unwind, so that everything is given back."""
    sys.exit(0)


@contextmanager
def _room(plan_file: Path) -> Generator[subprocess.Popen[bytes]]:
    inside = Path(__file__).with_name("inside.py")
    namespaces = ("--mount", "--pid", "--cgroup", "--fork", "--kill-child=SIGKILL", "--mount-proc")
    command = ["unshare", *namespaces, sys.executable, "-I", "-S", str(inside), str(plan_file)]
    room = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield room
    finally:
        room.kill()
        room.wait()


@contextmanager
def _kernel_settings() -> Generator[None]:
    files = [Path("/proc/sys") / name for name in _KERNEL_SETTINGS]
    before = {file: file.read_text() for file in files if file.exists()}
    try:
        yield
    finally:
        for file, text in before.items():
            if file.read_text() != text:
                file.write_text(text)


@contextmanager
def _bridge(name: str, address: str) -> Generator[None]:
    """The network of the pods; it is made before them, because the node has its address there."""
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "address", "add", address, "dev", name], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
        yield
    finally:
        subprocess.run(["ip", "link", "delete", name], check=False)


@contextmanager
def _control_groups(name: str) -> Generator[None]:
    """Be in a group of this name in every hierarchy; all that starts from here on is in it or below."""
    homes = [Path(mount) / name for mount in control_group_mounts()]
    before = _own_groups()
    try:
        for home in homes:
            home.mkdir(exist_ok=True)
            for setting in _CPUSET:
                # A group of the first version of control groups has no CPUs and takes no process until it is told some.
                if (home.parent / setting).exists() and not (home / "cgroup.controllers").exists():
                    (home / setting).write_text((home.parent / setting).read_text())
            (home / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        for home in homes:
            with suppress(OSError):
                (before.get(home.parent, home.parent) / "cgroup.procs").write_text(str(os.getpid()))
            _remove_groups(home)


def control_group_mounts() -> dict[str, str]:
    """Where the hierarchies of control groups are mounted, with the type (``cgroup`` or ``cgroup2``) and options of each."""
    mounts: dict[str, str] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind in {"cgroup", "cgroup2"}:
            mounts[place] = f"{kind} {options}"
    return mounts


def _own_groups() -> dict[Path, Path]:
    """In which group this process is, by the mount of each hierarchy."""
    groups: dict[Path, Path] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for place, description in control_group_mounts().items():
            kind, options = description.split()
            names = set(options.split(","))
            if (kind == "cgroup2" and not controllers) or (
                controllers and set(controllers.split(",")) <= names
            ):
                groups[Path(place)] = Path(place) / path.lstrip("/")
    return groups


def _remove_groups(home: Path) -> None:
    """Remove a group and those below; the kernel refuses until the last process of the room is gone."""
    give_up = time.monotonic() + _PATIENCE_S
    while home.exists() and time.monotonic() < give_up:
        for folder, _, _ in os.walk(home, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        if home.exists():
            time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
