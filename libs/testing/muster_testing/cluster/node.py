"""A real node: a kubelet with containerd, runc and a bridge, which runs real containers on this machine. Root only.

It is in a room of its own (``room``) and joins a control plane of this machine. Everything of it is from packages of the system
but the kubelet, which is built with the control plane; its images are made of this machine's files (``images``).
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Self

from muster_testing.cluster.cluster import Cluster
from muster_testing.cluster.credentials import write_kubeconfig
from muster_testing.cluster.images import PAUSE_IMAGE, write_archive
from muster_testing.cluster.program import ProgramFailed, free_port
from muster_testing.cluster.rest import RestError
from muster_testing.cluster.tools import require
from muster_testing.cluster.views import Node

#: What must be on the machine besides the control plane.
NODE_TOOLS = (
    "kubelet",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
    "runc",
    "ip",
    "unshare",
    "host-local",
    "loopback",
)

_READY_TIMEOUT_S = 90.0
_END_TIMEOUT_S = 30.0
_POLL_S = 0.1
_LAST_WORDS = 3_000


class RealNode:
    """One node; ``async with`` it. Its pods use images that are here: ``images.PYTHON_IMAGE``.

    Args:
        cluster: what it joins; an API server that listens on this machine.
        folder: for its configuration, logs and containers; the latter are removed at the end.
        name: the node's name; None for one that no other node has.
        gpus: ``nvidia.com/gpu`` that it claims to have.
        labels: added to those that the kubelet gives.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        folder: Path,
        name: str | None = None,
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        tag = token_hex(3)
        self.name = name or f"real-{tag}"
        #: What distinguishes its bridge and its control groups, both called ``muster-{tag}``.
        self.tag = tag
        self._cluster = cluster
        self._folder = folder
        self._gpus = gpus
        self._labels = dict(labels or {})
        # Of the private addresses; two nodes on one machine are in different networks as good as always.
        self._network = f"10.{200 + int(tag[:2], 16) % 50}.{int(tag[2:4], 16)}"
        self._caretaker: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Its address in the network of its pods, under which they reach servers of this machine that listen there."""
        return f"{self._network}.1"

    async def start(self) -> None:
        """Start it, and wait until the control plane holds it for ready; raises ``ProgramFailed``."""
        await asyncio.to_thread(self._prepare)
        self._caretaker = self._start_caretaker()
        try:
            await self._until_ready(self._caretaker)
        except BaseException:
            await self.lose()
            raise

    async def lose(self) -> None:
        """End it and all that runs on it at once, as a power failure would; the control plane is told nothing."""
        caretaker, self._caretaker = self._caretaker, None
        if caretaker is None or caretaker.stdin is None:
            return
        caretaker.stdin.close()
        await asyncio.to_thread(caretaker.wait, _END_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.lose()
        await self._cluster.remove_nodes([self.name])

    def last_words(self) -> str:
        """The ends of its logs."""
        files = [self._folder / f"{name}.log" for name in ("caretaker", "containerd", "names", "kubelet")]
        return "\n".join(
            f"--- {file.name}\n{file.read_bytes()[-_LAST_WORDS:].decode(errors='replace')}"
            for file in files
            if file.exists()
        )

    def _start_caretaker(self) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("room") / "caretaker.py"
        with (self._folder / "caretaker.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(script), str(self._folder / "plan.json")],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        cni = self._folder / "cni"
        cni.mkdir(exist_ok=True)
        write_kubeconfig(
            self._folder / "kubeconfig",
            url=self._cluster.url,
            ca_file=self._cluster.ca_file,
            token=self._cluster.token,
        )
        _write(self._folder / "kubelet.json", kubelet_configuration(address=self.address, port=free_port()))
        _write(cni / "10-bridge.conflist", pod_network(bridge=self._bridge, network=self._network))
        (self._folder / "containerd.toml").write_text(containerd_configuration(folder=self._folder))
        write_archive(self._folder / "images.tar")
        plan = {
            "name": f"muster-{self.tag}",
            "node": self.name,
            "bridge": self._bridge,
            "address": f"{self.address}/24",
            "folder": str(self._folder),
            **{tool: str(require(tool)) for tool in ("containerd", "ctr", "kubelet")},
        }
        _write(self._folder / "plan.json", plan)

    @property
    def _bridge(self) -> str:
        return f"muster-{self.tag}"

    async def _until_ready(self, caretaker: subprocess.Popen[bytes]) -> None:
        give_up = time.monotonic() + _READY_TIMEOUT_S
        async with self._cluster.connect() as api:
            while time.monotonic() < give_up:
                if caretaker.poll() is not None:
                    raise ProgramFailed(
                        f"the node ended with code {caretaker.returncode}\n{self.last_words()}"
                    )
                try:
                    if (await api.get(f"/api/v1/nodes/{self.name}", Node)).ready:
                        break
                except RestError:
                    pass
                await asyncio.sleep(_POLL_S)
            else:
                raise ProgramFailed(
                    f"the node was not ready within {_READY_TIMEOUT_S:g} s\n{self.last_words()}"
                )
            await api.patch(f"/api/v1/nodes/{self.name}", {"metadata": {"labels": self._labels}})
            if self._gpus:
                room = {"nvidia.com/gpu": str(self._gpus)}
                offer = {"status": {"capacity": room, "allocatable": room}}
                await api.patch(f"/api/v1/nodes/{self.name}/status", offer)


def kubelet_configuration(*, address: str, port: int) -> dict[str, object]:
    """A kubelet that does without systemd, the second version of control groups, and limits that need more than root here."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        # It listens in the network of its own pods; the API server has no certificate to show it.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "podLogsDir": "/var/log/pods",
        "resolvConf": "",
        "clusterDNS": [address],
        "clusterDomain": "cluster.local",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "imageGCHighThresholdPercent": 100,
        # A disk that is nearly full is the machine's matter, not the tests'.
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "nodeStatusUpdateFrequency": "2s",
    }


def pod_network(*, bridge: str, network: str) -> dict[str, object]:
    """Pods are on one bridge, with addresses of ``network`` (three numbers); they reach this machine and nothing else."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/addresses",
        "ranges": [[{"subnet": f"{network}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugin = {"type": "bridge", "bridge": bridge, "isGateway": True, "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "muster", "plugins": [plugin]}


def containerd_configuration(*, folder: Path) -> str:
    """The configuration of containerd, with what is the room's own."""
    plugins = require("host-local").parent
    return f"""version = 2
root = "/run/muster/containerd"
state = "/run/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{_snapshotter(folder)}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{plugins}"
conf_dir = "/run/muster/cni"
"""


def _snapshotter(folder: Path) -> str:
    """Layers are laid over one another, except where this machine is itself laid over something."""
    answer = subprocess.run(
        ["stat", "--file-system", "--format=%T", str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return "native" if answer.stdout.strip() in {"overlayfs", "tmpfs"} else "overlayfs"


def may_run() -> bool:
    """Whether this process may run a real node: as root."""
    return os.geteuid() == 0


def _write(file: Path, content: Mapping[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2))
