"""A real node: a kubelet with containerd, runc and a bridge, which runs real containers on this machine; needs root.

It runs in namespaces (``node_sandbox``) and joins a control plane of this machine. Its programs come from system packages, except the
kubelet, which is built with the control plane; its images are made from this machine's files (``images``).
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Self

from muster_testing.cluster.access import write_kubeconfig
from muster_testing.cluster.cluster import Cluster, suppress_status
from muster_testing.cluster.images import PAUSE_IMAGE, write_archive
from muster_testing.cluster.program import ClusterProgramFailed, free_port
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

#: At which name and port pods reach the API server; its certificate has the name.
API_SERVER_NAME = "kubernetes.default.svc"
API_SERVER_PORT = 443

_READY_TIMEOUT_S = 90.0
#: Of this the import of images is most.
_READY_WITH_IMAGES_TIMEOUT_S = 300.0
_CONFLICT = 409
_END_TIMEOUT_S = 30.0
_POLL_S = 0.1
_LOG_TAIL_BYTES = 3_000


class RealNode:
    """One node; use it with ``async with``. Its pods use the local image ``images.PYTHON_IMAGE``.

    Args:
        cluster: The cluster to join; its API server must listen on this machine.
        folder: The directory for configuration, logs and containers; containers are deleted at the end.
        name: The node's name; None for a unique one.
        gpus: The ``nvidia.com/gpu`` that it declares.
        labels: Its labels besides those of the kubelet.
        images: Archives of more images, as ``docker save`` writes them.
        offers_api_server: Whether pods reach the API server, at ``API_SERVER_NAME`` and ``API_SERVER_PORT``. The node forwards their
            connections, since the API server listens on the loopback address of this machine.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        folder: Path,
        name: str | None = None,
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
        images: Sequence[Path] = (),
        offers_api_server: bool = False,
    ) -> None:
        tag = token_hex(3)
        self.name = name or f"real-{tag}"
        #: The name of its bridge and its control groups is ``muster-{tag}``.
        self.tag = tag
        self._cluster = cluster
        self._folder = folder
        self._gpus = gpus
        self._labels = dict(labels or {})
        self._images = tuple(images)
        self._offers_api_server = offers_api_server
        # A random private network, so that two nodes on one machine do not collide.
        self._network = f"10.{200 + int(tag[:2], 16) % 50}.{int(tag[2:4], 16)}"
        self._sandbox: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Its address in the pod network, at which pods reach servers of this machine."""
        return f"{self._network}.1"

    async def start(self) -> None:
        """Start the node, and wait until it is ready; raises ``ClusterProgramFailed``."""
        await asyncio.to_thread(self._prepare)
        self._sandbox = self._start_sandbox()
        try:
            await self._until_ready(self._sandbox)
        except BaseException:
            await self.lose()
            raise

    async def lose(self) -> None:
        """Kill the node and everything on it, like a power failure; the control plane is not informed."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None or sandbox.stdin is None:
            return
        sandbox.stdin.close()
        await asyncio.to_thread(sandbox.wait, _END_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.lose()
        await self._cluster.remove_nodes([self.name])

    def log_tail(self) -> str:
        """The last lines of its logs."""
        files = [
            self._folder / f"{name}.log" for name in ("sandbox", "containerd", "dns", "forwarder", "kubelet")
        ]
        return "\n".join(
            f"--- {file.name}\n{file.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors='replace')}"
            for file in files
            if file.exists()
        )

    def _start_sandbox(self) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("node_sandbox.py")
        with (self._folder / "sandbox.log").open("ab") as log:
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
        own_images = self._folder / "images.tar"
        write_archive(own_images)
        plan = {
            "name": f"muster-{self.tag}",
            "node": self.name,
            "bridge": self._bridge,
            "address": f"{self.address}/24",
            "folder": str(self._folder),
            "images": os.pathsep.join(map(str, (own_images, *self._images))),
            "api_server": self._cluster.url if self._offers_api_server else "",
            "api_server_port": str(API_SERVER_PORT),
            **{tool: str(require(tool)) for tool in ("containerd", "ctr", "kubelet")},
        }
        _write(self._folder / "plan.json", plan)

    @property
    def _bridge(self) -> str:
        return f"muster-{self.tag}"

    async def _until_ready(self, sandbox: subprocess.Popen[bytes]) -> None:
        timeout_s = _READY_WITH_IMAGES_TIMEOUT_S if self._images else _READY_TIMEOUT_S
        give_up = time.monotonic() + timeout_s
        async with self._cluster.connect() as api:
            while time.monotonic() < give_up:
                if sandbox.poll() is not None:
                    raise ClusterProgramFailed(
                        f"the node ended with code {sandbox.returncode}\n{self.log_tail()}"
                    )
                try:
                    if (await api.get(f"/api/v1/nodes/{self.name}", Node)).ready:
                        break
                except RestError:
                    pass
                await asyncio.sleep(_POLL_S)
            else:
                raise ClusterProgramFailed(
                    f"the node was not ready within {timeout_s:g} s\n{self.log_tail()}"
                )
            await api.patch(f"/api/v1/nodes/{self.name}", {"metadata": {"labels": self._labels}})
            if self._gpus:
                capacity = {"nvidia.com/gpu": str(self._gpus)}
                offer = {"status": {"capacity": capacity, "allocatable": capacity}}
                await api.patch(f"/api/v1/nodes/{self.name}/status", offer)
            if self._offers_api_server:
                with suppress_status(_CONFLICT):
                    await api.create(
                        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
                        self._api_server_slice(),
                    )

    def _api_server_slice(self) -> Mapping[str, object]:
        """Return the endpoints of the service ``kubernetes``, which the API server does not write for its loopback address."""
        return {
            "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [self.address], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": API_SERVER_PORT, "protocol": "TCP"}],
        }


def kubelet_configuration(*, address: str, port: int) -> dict[str, object]:
    """Return a kubelet configuration without systemd, cgroup v2, and limits that need more than root in a container."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": 0,
        # It listens in the pod network, and the API server has no client certificate.
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
        # Do not evict pods because the disk is nearly full.
        "evictionHard": {"memory.available": "10Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "nodeStatusUpdateFrequency": "2s",
    }


def pod_network(*, bridge: str, network: str) -> dict[str, object]:
    """Return a CNI configuration: one bridge with the addresses of ``network`` (three numbers), without a route outside."""
    addresses = {
        "type": "host-local",
        "dataDir": "/run/addresses",
        "ranges": [[{"subnet": f"{network}.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    plugin = {"type": "bridge", "bridge": bridge, "isGateway": True, "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "muster", "plugins": [plugin]}


def containerd_configuration(*, folder: Path) -> str:
    """Return the configuration of containerd."""
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
    """Return the snapshotter: overlayfs, unless this machine's own root is an overlay."""
    answer = subprocess.run(
        ["stat", "--file-system", "--format=%T", str(folder)],
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return "native" if answer.stdout.strip() in {"overlayfs", "tmpfs"} else "overlayfs"


def may_run() -> bool:
    """Whether this process may run a real node, which needs root."""
    return os.geteuid() == 0


def _write(file: Path, content: Mapping[str, object]) -> None:
    file.write_text(json.dumps(content, indent=2))
