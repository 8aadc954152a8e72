"""Runs a real node in namespaces, and cleans everything up when the test process ends or is killed.

The node has its own process, mount and control group namespaces, so that one kill ends all its processes and removes its mounts. The rest
is undone here: the bridge of its pods, the control groups, kernel settings that the kubelet changes for the whole machine, and the images
on disk. The test process holds the other end of stdin, whose end signals the end of the test process, even by SIGKILL.

    python -I -S node_sandbox.py PLAN.json

This file imports only the standard library.
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

_REMOVE_S = 15.0
_POLL_S = 0.05
_KERNEL_SETTINGS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward"),
)
_CPUSET = ("cpuset.cpus", "cpuset.mems")


def main(plan_file: Path) -> int:
    """Run the node of a plan until stdin ends; returns the node's exit code if it ended by itself."""
    plan: dict[str, str] = json.loads(plan_file.read_text())
    signal.signal(signal.SIGTERM, _exit)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, Path(plan["folder"]) / "containerd", ignore_errors=True)
        stack.enter_context(_kernel_settings())
        stack.enter_context(_bridge(plan["bridge"], plan["address"]))
        stack.enter_context(_control_groups(plan["name"]))
        node = stack.enter_context(_namespaces(plan_file))
        ended = os.pidfd_open(node.pid)
        stack.callback(os.close, ended)
        readable, _, _ = select.select([sys.stdin.fileno(), ended], [], [])
        return (node.wait() or 1) if ended in readable else 0


def _exit(number: int, frame: object) -> None:
    """Exit through the exit stack, which cleans up."""
    sys.exit(0)


@contextmanager
def _namespaces(plan_file: Path) -> Generator[subprocess.Popen[bytes]]:
    init = Path(__file__).with_name("node_init.py")
    namespaces = ("--mount", "--pid", "--cgroup", "--fork", "--kill-child=SIGKILL", "--mount-proc")
    command = ["unshare", *namespaces, sys.executable, "-I", "-S", str(init), str(plan_file)]
    node = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield node
    finally:
        node.kill()
        node.wait()


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
    """Create the bridge of the pod network, which has the node's address."""
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "address", "add", address, "dev", name], check=True)
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
        with _forwarding(name):
            yield
    finally:
        subprocess.run(["ip", "link", "delete", name], check=False)


@contextmanager
def _forwarding(bridge: str) -> Generator[None]:
    """Let pods connect to each other on a machine with a Docker engine, which sets the policy of forwarding to DROP."""
    if shutil.which("iptables") is None:
        yield
        return
    rule = ["FORWARD", "--in-interface", bridge, "--out-interface", bridge, "--jump", "ACCEPT"]
    subprocess.run(["iptables", "--wait", "--insert", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run(["iptables", "--wait", "--delete", *rule], check=False)


@contextmanager
def _control_groups(name: str) -> Generator[None]:
    """Move this process, and so its later children, to a control group of this name in every hierarchy."""
    homes = [Path(mount) / name for mount in control_group_mounts()]
    before = _own_groups()
    try:
        for home in homes:
            home.mkdir(exist_ok=True)
            for setting in _CPUSET:
                # A cgroup v1 cpuset accepts processes only after its CPUs are set.
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
    """Return the mount points of the control group hierarchies, with type (``cgroup`` or ``cgroup2``) and options."""
    mounts: dict[str, str] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind in {"cgroup", "cgroup2"}:
            mounts[place] = f"{kind} {options}"
    return mounts


def _own_groups() -> dict[Path, Path]:
    """Return the control group of this process in each hierarchy, by mount point."""
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
    """Remove a control group with its children; the kernel refuses until the last process of the node is gone."""
    deadline = time.monotonic() + _REMOVE_S
    while home.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(home, topdown=False):
            with suppress(OSError):
                Path(folder).rmdir()
        if home.exists():
            time.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
