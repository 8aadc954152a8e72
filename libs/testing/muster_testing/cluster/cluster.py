"""A cluster for tests, started by them or existing before, and the simulated nodes that they add to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Self

from muster_testing.cluster.access import Access
from muster_testing.cluster.kwok import LEASE_S, Kwok, add_nodes
from muster_testing.cluster.rest import Rest, RestError
from muster_testing.cluster.views import Taint

_NOT_FOUND = 404
_CONFLICT = 409

NODE_GRACE_S = 50
"""After how many seconds without a lease a node is not ready, by Kubernetes' default."""


class Cluster:
    """An API server that tests may use, and the simulated nodes that they add to it.

    Args:
        access: The administrator's access.
        folder: The directory for what the tests start.
        node_grace_s: After how long a node without a lease is not ready; simulated nodes renew theirs at least three times in it.
    """

    def __init__(self, *, access: Access, folder: Path, node_grace_s: int = NODE_GRACE_S) -> None:
        self._access = access
        self._folder = folder
        self._lease_s = min(LEASE_S, 4 * node_grace_s // 3)
        self._kwok: Kwok | None = None
        self._added: list[str] = []

    @property
    def access(self) -> Access:
        """The administrator's access."""
        return self._access

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self._access.kubeconfig

    @property
    def url(self) -> str:
        """The URL of the API server."""
        return self._access.url

    @property
    def ca_file(self) -> Path:
        """The certificate authority of the API server."""
        return self._access.ca_file

    @property
    def token(self) -> str:
        """The administrator's token; empty for an existing cluster with client certificates."""
        return self._access.token

    def connect(self) -> AbstractAsyncContextManager[Rest]:
        """Open a session with the API server as administrator."""
        return self._access.connect()

    async def create_namespace(self, name: str) -> None:
        """Create a namespace unless it exists."""
        async with self.connect() as api:
            with suppress_status(_CONFLICT):
                await api.create("/api/v1/namespaces", {"metadata": {"name": name}})

    async def delete_namespace(self, name: str) -> None:
        """Delete a namespace, and its pods by force, because no kubelet may be there to confirm their ends."""
        async with self.connect() as api:
            with suppress_status(_NOT_FOUND):
                await api.delete(f"/api/v1/namespaces/{name}/pods", gracePeriodSeconds="0")
                await api.delete(f"/api/v1/namespaces/{name}")

    async def add_kwok_nodes(
        self,
        count: int,
        *,
        cpu: str,
        memory: str,
        gpus: int = 0,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Taint] = (),
        prefix: str = "kwok",
    ) -> list[str]:
        """Add ``count`` ready nodes that kwok simulates, and return their names, ``{prefix}-0`` and so on.

        Each has ``cpu`` and ``memory`` (Kubernetes quantities) and ``gpus`` of ``nvidia.com/gpu``. ``prefix`` must be unique per call.
        """
        if self._kwok is None:
            kwok = Kwok(kubeconfig=self.kubeconfig, folder=self._folder / "kwok", lease_s=self._lease_s)
            await kwok.start()
            self._kwok = kwok
        async with self.connect() as api:
            names = await add_nodes(
                api,
                count,
                cpu=cpu,
                memory=memory,
                gpus=gpus,
                labels=labels or {},
                taints=taints,
                prefix=prefix,
            )
        self._added += names
        return names

    async def remove_nodes(self, names: Sequence[str]) -> None:
        """Delete nodes; missing ones are ignored."""
        async with self.connect() as api:
            for name in names:
                with suppress_status(_NOT_FOUND):
                    await api.delete(f"/api/v1/nodes/{name}")
        self._added = [name for name in self._added if name not in set(names)]

    async def leave(self) -> None:
        """Delete the added nodes, and stop kwok."""
        await self.remove_nodes(self._added)
        self.stop_kwok()

    @contextmanager
    def kwok_suspended(self) -> Generator[None]:
        """Suspend the simulated nodes inside the context; after the grace period they are not ready."""
        kwok = self._kwok
        if kwok is not None:
            kwok.suspend()
        try:
            yield
        finally:
            if kwok is not None:
                kwok.resume()

    def stop_kwok(self) -> None:
        """Stop kwok; its nodes stay, without leases."""
        kwok, self._kwok = self._kwok, None
        if kwok is not None:
            kwok.end()


class suppress_status(suppress):  # noqa: N801 - used like the function that it extends
    """Suppress ``RestError`` with one HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(RestError)
        self._status = status

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        """Return True for the expected error."""
        return isinstance(error, RestError) and error.status == self._status


_LEASE_S = 8


class UnresponsiveNodes:
    """Nodes with their own kwok, which can stop reporting like machines without power or network."""

    def __init__(self, *, names: list[str], kwok: Kwok) -> None:
        self.names = names
        self._kwok = kwok

    @classmethod
    @asynccontextmanager
    async def added(
        cls, cluster: Cluster, count: int, *, cpu: str, memory: str, folder: Path, gpus: int = 0
    ) -> AsyncGenerator[Self]:
        """Add ready nodes, which renew their leases every two seconds until ``stop_heartbeats``; the end of the block deletes them."""
        sign = f"silent-{token_hex(3)}"
        kwok = Kwok(kubeconfig=cluster.kubeconfig, folder=folder / sign, simulated=sign, lease_s=_LEASE_S)
        await kwok.start()
        nodes: list[str] = []
        try:
            async with cluster.connect() as api:
                nodes = await add_nodes(
                    api,
                    count,
                    cpu=cpu,
                    memory=memory,
                    gpus=gpus,
                    labels={},
                    taints=(),
                    prefix=sign,
                    simulated=sign,
                )
            yield cls(names=nodes, kwok=kwok)
        finally:
            kwok.end()
            await cluster.remove_nodes(nodes)

    def stop_heartbeats(self) -> None:
        """Stop renewing the leases; the pods stay as they are."""
        self._kwok.end()
