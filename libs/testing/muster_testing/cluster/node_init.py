"""The first process of a real node: mounts its file systems, starts containerd, the kubelet and its servers, and reaps processes.

The node has its own ``/run``, and its directory is mounted at ``/run/muster``, because socket paths must be short.

    python -I -S node_init.py PLAN.json
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

_HOME = Path("/run/muster")
_SOCKET = Path("/run/containerd/containerd.sock")
_START_TIMEOUT_S = 60.0
_POLL_S = 0.05
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main(plan_file: Path) -> int:
    """Run the node until one of its programs ends, and return an exit code."""
    plan: dict[str, str] = json.loads(plan_file.read_text())
    _mount(plan)
    containerd = _start(plan["containerd"], "--config", str(_HOME / "containerd.toml"), log="containerd")
    _await_socket(containerd)
    importing = [plan["ctr"], "--address", str(_SOCKET), "--namespace", "k8s.io", "images", "import"]
    for archive in plan["images"].split(os.pathsep):
        subprocess.run([*importing, archive], check=True, env={"PATH": _PATH})
    kubelet = _start(
        plan["kubelet"],
        f"--config={_HOME / 'kubelet.json'}",
        f"--kubeconfig={_HOME / 'kubeconfig'}",
        f"--root-dir={_HOME / 'kubelet'}",
        f"--cert-dir={_HOME / 'kubelet' / 'pki'}",
        f"--hostname-override={plan['node']}",
        f"--node-ip={plan['address'].partition('/')[0]}",
        log="kubelet",
    )
    programs = {containerd.pid: "containerd", kubelet.pid: "the kubelet"}
    programs[_start_script("dns_server.py", plan_file, log="dns").pid] = "the DNS server"
    if plan["api_server"]:
        programs[_start_script("api_forwarder.py", plan_file, log="forwarder").pid] = "the API forwarder"
    while True:
        # Orphaned processes of the node become children of this process.
        pid, status = os.wait()
        if pid in programs:
            sys.stderr.write(f"{programs[pid]} ended with code {os.waitstatus_to_exitcode(status)}\n")
            return 1


def _mount(plan: dict[str, str]) -> None:
    folder = Path(plan["folder"])
    _run("mount", "-t", "tmpfs", "tmpfs", "/var/log")
    _run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name in ("muster", "containerd", "lock"):
        (Path("/run") / name).mkdir()
    _run("mount", "--bind", str(folder), str(_HOME))
    _remount_control_groups()


def _remount_control_groups() -> None:
    """Mount the control group hierarchies again, because the outer mounts show the groups of the whole machine."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup":
            controllers = [
                each
                for each in options.split(",")
                if each not in {"rw", "ro", "relatime", "nosuid", "nodev", "noexec"}
            ]
            named = any(each.startswith("name=") for each in controllers)
            _run("umount", place)
            _run(
                "mount",
                "-t",
                kind,
                "-o",
                ",".join((["none"] if named else []) + controllers),
                "cgroup",
                place,
            )
        elif kind == "cgroup2":
            _run("umount", place)
            _run("mount", "-t", kind, "cgroup2", place)
            _delegate(Path(place))


def _delegate(root: Path) -> None:
    """Enable controllers for child groups: in cgroup v2 a group that delegates controllers may have no processes."""
    controllers = (root / "cgroup.controllers").read_text().split()
    if not controllers:
        return
    leaf = root / "node"
    leaf.mkdir(exist_ok=True)
    for pid in (root / "cgroup.procs").read_text().split():
        (leaf / "cgroup.procs").write_text(pid)
    (root / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in controllers))


def _start(*command: str, log: str) -> subprocess.Popen[bytes]:
    with (_HOME / f"{log}.log").open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={"PATH": _PATH, "HOME": str(_HOME)},
        )


def _start_script(name: str, plan_file: Path, *, log: str) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name(name)
    return _start(sys.executable, "-I", "-S", str(script), str(plan_file), log=log)


def _await_socket(containerd: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not _SOCKET.exists():
        if containerd.poll() is not None or time.monotonic() > deadline:
            sys.exit("containerd did not start, see containerd.log")
        time.sleep(_POLL_S)


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
