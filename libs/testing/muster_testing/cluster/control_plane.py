"""A control plane on this machine: etcd, an API server and a controller manager, each with its own port and directory.

It starts in seconds, is killed with the test process, and keeps nothing. By default etcd does not sync to disk, because tests do not need
durability; benchmarks do.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType, TracebackType
from typing import Self

import aiohttp

from muster_testing.cluster.access import Access, read_kubeconfig, write_kubeconfig, write_tokens
from muster_testing.cluster.cluster import NODE_GRACE_S, Cluster, suppress_status
from muster_testing.cluster.program import ChildProgram, free_port, run_in_new_loop
from muster_testing.cluster.rest import RestError
from muster_testing.cluster.tools import require
from muster_testing.cluster.views import Named

_READY_TIMEOUT_S = 120.0
#: Sockets in the folder in which the programs run, since their whole paths would often be longer than a socket's may be.
_STORE = "unix://store:0"
_STORE_PEER = "unix://peer:0"
#: The groups that Kubernetes' own gang scheduling needs; without a scheduler they change nothing.
_GANG_GATES = "GenericWorkload=true,GangScheduling=true"
#: An API server that is started again and again does not get to compact what it has stored.
_LASTING = (
    "--auto-compaction-mode=revision",
    "--auto-compaction-retention=1000",
    "--quota-backend-bytes=8589934592",
)
_NOT_FOUND = 404
#: The controllers create this object in every namespace, and again after its deletion.
_OF_EVERY_NAMESPACE = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
#: Go keeps freed memory until the kernel needs it, instead of returning it and faulting it in again.
_KEEPS_MEMORY = {"GODEBUG": "madvdontneed=0"}


class ControlPlane(Cluster):
    """One control plane; use it with ``async with``, or with ``with`` for a session of tests.

    Args:
        folder: The directory for its certificates, logs and etcd data; created if missing.
        node_grace_s: After how long a node without a lease is not ready, in seconds.
        durable: Whether etcd syncs to disk.
        keeps_memory: Whether the API server keeps freed memory, so that the cost of a request does not depend on the load before it.
        service_accounts: Whether pods get the token of their service account. Each then waits for the account of its namespace.
        cores: The CPUs of etcd, the API server and the controllers; empty for those of this process. kube-scheduler and kwok always
            run on the CPUs of this process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        node_grace_s: int = NODE_GRACE_S,
        durable: bool = False,
        keeps_memory: bool = False,
        service_accounts: bool = False,
        cores: Sequence[int] = (),
    ) -> None:
        port = free_port()
        access = Access(
            kubeconfig=folder / "kubeconfig",
            url=f"https://127.0.0.1:{port}",
            ca_file=folder / "certificates" / "apiserver.crt",
            token=token_hex(16),
        )
        super().__init__(access=access, folder=folder, node_grace_s=node_grace_s)
        self._port = port
        self._scheduler_port = free_port()
        self._node_grace_s = node_grace_s
        self._service_accounts = service_accounts
        settings = _KEEPS_MEMORY if keeps_memory else {}
        self._etcd = self._make("etcd", self._etcd_flags(durable=durable), cores=cores)
        self._api_server = self._make("kube-apiserver", self._api_server_flags(), settings, cores=cores)
        self._controllers = self._make("kube-controller-manager", self._controller_flags(), cores=cores)
        self._scheduler = self._make("kube-scheduler", self._scheduler_flags())

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the running programs, by name."""
        programs = (self._etcd, self._api_server, self._controllers, self._scheduler)
        running = {each.name: pid for each in programs if (pid := each.pid) is not None}
        played = self._kwok.pid if self._kwok is not None else None
        return running if played is None else {**running, "kwok": played}

    async def start_scheduler(self) -> None:
        """Start kube-scheduler with its gang scheduling (``PodGroup``, ``minCount``); raises ``ClusterProgramFailed``."""
        self._scheduler.start()
        await self._scheduler.until(self._scheduler_ready, timeout_s=_READY_TIMEOUT_S)

    def stop_scheduler(self) -> None:
        """Stop kube-scheduler."""
        self._scheduler.end(signal.SIGTERM)

    def kill_api_server(self) -> None:
        """Kill the API server; etcd and the controllers stay."""
        self._api_server.end()

    async def restart_api_server(self) -> None:
        """Kill the API server if it runs, start it on the same port, and wait until it is ready."""
        self._api_server.end()
        self._api_server.start()
        await self._api_server.until(self._ready, timeout_s=_READY_TIMEOUT_S)

    async def renew(self) -> None:
        """Restart the API server and the controllers with empty caches; etcd keeps its data."""
        self._controllers.end()
        await self.restart_api_server()
        async with self.connect() as api:
            with suppress_status(_NOT_FOUND):
                await api.delete(_OF_EVERY_NAMESPACE)
        self._controllers.start()
        await self._controllers.until(self._controlled, timeout_s=_READY_TIMEOUT_S)

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def __enter__(self) -> Self:
        run_in_new_loop(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    async def _start(self) -> None:
        (self._folder / "certificates").mkdir(parents=True, exist_ok=True)
        write_tokens(self._folder / "tokens.csv", token=self.token)
        write_kubeconfig(self.kubeconfig, url=self.url, ca_file=self.ca_file, token=self.token)
        key = self._folder / "service-accounts.key"
        try:
            await asyncio.to_thread(_make_key, key)
            self._etcd.start()
            self._api_server.start()
            await self._api_server.until(self._ready, timeout_s=_READY_TIMEOUT_S)
            self._controllers.start()
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self.stop_kwok()
        for program in (self._scheduler, self._controllers, self._api_server, self._etcd):
            program.end()

    async def _ready(self) -> bool:
        """Whether pods can be created: the server responds and has created the default namespace."""
        if not self.ca_file.exists():
            return False
        try:
            async with self.connect() as api:
                await api.text("/readyz")
                await api.get("/api/v1/namespaces/default", Named)
        except (RestError, aiohttp.ClientError, OSError):
            return False
        return True

    async def _controlled(self) -> bool:
        """Whether the controllers work."""
        try:
            async with self.connect() as api:
                await api.get(_OF_EVERY_NAMESPACE, Named)
        except (RestError, aiohttp.ClientError, OSError):
            return False
        return True

    async def _scheduler_ready(self) -> bool:
        """Whether the scheduler is ready; its self-signed certificate is not checked, because no secret is sent."""
        url = f"https://127.0.0.1:{self._scheduler_port}/readyz"
        try:
            async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as response:
                return response.ok
        except (aiohttp.ClientError, OSError):
            return False

    def _make(
        self,
        name: str,
        flags: Sequence[str],
        settings: Mapping[str, str] = MappingProxyType({}),
        *,
        cores: Sequence[int] = (),
    ) -> ChildProgram:
        environment = {"PATH": os.defpath, "HOME": str(self._folder), **settings}
        # Before its first thread, so that it counts only these CPUs.
        placed = [str(require("taskset")), "--cpu-list", ",".join(map(str, cores))] if cores else []
        return ChildProgram(
            name, [*placed, str(require(name)), *flags], folder=self._folder, environment=environment
        )

    def _etcd_flags(self, *, durable: bool) -> list[str]:
        return [
            f"--data-dir={self._folder / 'store'}",
            f"--listen-client-urls={_STORE}",
            f"--advertise-client-urls={_STORE}",
            f"--listen-peer-urls={_STORE_PEER}",
            f"--initial-advertise-peer-urls={_STORE_PEER}",
            f"--initial-cluster=default={_STORE_PEER}",
            f"--unsafe-no-fsync={str(not durable).lower()}",
            "--log-level=warn",
            *(_LASTING if durable else ()),
        ]

    def _api_server_flags(self) -> list[str]:
        key = self._folder / "service-accounts.key"
        return [
            f"--etcd-servers={_STORE}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._folder / 'certificates'}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            # Pods of most tests get no tokens; service accounts work without.
            *(() if self._service_accounts else ("--disable-admission-plugins=ServiceAccount",)),
            "--allow-privileged=true",
            # No other machine resolves the node names.
            "--kubelet-preferred-address-types=InternalIP",
            "--endpoint-reconciler-type=none",
            f"--feature-gates={_GANG_GATES}",
            "--runtime-config=scheduling.k8s.io/v1alpha2=true",
            "--profiling=false",
        ]

    def _controller_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            f"--service-account-private-key-file={self._folder / 'service-accounts.key'}",
            f"--root-ca-file={self.ca_file}",
            "--leader-elect=false",
            "--secure-port=0",
            "--use-service-account-credentials=false",
            f"--node-monitor-grace-period={self._node_grace_s}s",
            # Delete namespaces and owned objects at the pace of tests.
            "--concurrent-namespace-syncs=20",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--profiling=false",
        ]

    def _scheduler_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._scheduler_port}",
            f"--cert-dir={self._folder / 'scheduler'}",
            f"--feature-gates={_GANG_GATES}",
            "--kube-api-qps=10000",
            "--kube-api-burst=10000",
            "--profiling=false",
        ]


def _make_key(file: Path) -> None:
    command = [str(require("openssl")), "genrsa", "-out", str(file), "2048"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)


GIVEN_KUBECONFIG = "MUSTER_TEST_KUBECONFIG"


@contextmanager
def control_plane_for_tests(folder: Path) -> Generator[Cluster]:
    """Yield the cluster of ``MUSTER_TEST_KUBECONFIG``, or a control plane in ``folder``.

    At the end only the added nodes are deleted from a given cluster.
    """
    if not (given := os.environ.get(GIVEN_KUBECONFIG)):
        with ControlPlane(folder) as control_plane:
            yield control_plane
        return
    cluster = Cluster(access=read_kubeconfig(Path(given)), folder=folder)
    try:
        yield cluster
    finally:
        run_in_new_loop(cluster.leave())
