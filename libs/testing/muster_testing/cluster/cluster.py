"""What tests ask of a cluster, whoever made it."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from pathlib import Path

from muster_testing.cluster.access import Access
from muster_testing.cluster.kwok import LEASE_S, Kwok, add_nodes
from muster_testing.cluster.rest import Rest, RestError
from muster_testing.cluster.views import Taint

_NOT_FOUND = 404
_CONFLICT = 409

NODE_GRACE_S = 50
"""After how long a node that is not heard of is held for lost, as Kubernetes has it."""


class Cluster:
    """An API server that tests may use, and the simulated nodes that they add to it.

    Args:
        access: how its administrator reaches it.
        folder: for what the tests themselves start.
        node_grace_s: after how long it takes a silent node for lost; those that are played are heard of three times as often.
    """

    def __init__(self, *, access: Access, folder: Path, node_grace_s: int = NODE_GRACE_S) -> None:
        self._access = access
        self._folder = folder
        self._lease_s = min(LEASE_S, 4 * node_grace_s // 3)
        self._kwok: Kwok | None = None
        self._added: list[str] = []

    @property
    def access(self) -> Access:
        """How its administrator reaches it."""
        return self._access

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of its administrator."""
        return self._access.kubeconfig

    @property
    def url(self) -> str:
        """Where the API server is."""
        return self._access.url

    @property
    def ca_file(self) -> Path:
        """Who signed its certificate."""
        return self._access.ca_file

    @property
    def token(self) -> str:
        """The administrator's token; empty for a given cluster that asks for a certificate instead."""
        return self._access.token

    def connect(self) -> AbstractAsyncContextManager[Rest]:
        """A session with the API server, as its administrator."""
        return self._access.connect()

    async def create_namespace(self, name: str) -> None:
        """Make a namespace; one that is there already is fine."""
        async with self.connect() as api:
            with suppress_status(_CONFLICT):
                await api.create("/api/v1/namespaces", {"metadata": {"name": name}})

    async def delete_namespace(self, name: str) -> None:
        """Ask for a namespace and all in it to be deleted; pods go at once, even those of nodes that are gone."""
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
        """Add ready nodes that kwok plays; returns their names, ``{prefix}-0`` and so on.

        Args:
            count: how many.
            cpu: what each offers, as a Kubernetes quantity.
            memory: likewise.
            gpus: ``nvidia.com/gpu`` of each; 0 leaves the resource out.
            labels: added to those that every node has.
            taints: as in a node's spec.
            prefix: must differ between calls that are to add different nodes.
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
        """Take nodes away, as when machines are scrapped; those that are gone already are fine."""
        async with self.connect() as api:
            for name in names:
                with suppress_status(_NOT_FOUND):
                    await api.delete(f"/api/v1/nodes/{name}")
        self._added = [name for name in self._added if name not in set(names)]

    async def leave(self) -> None:
        """Take away the nodes that were added, and stop playing them."""
        await self.remove_nodes(self._added)
        self.end_kwok()

    @contextmanager
    def kubelets_at_rest(self) -> Generator[None]:
        """Nobody plays the nodes while this is entered; for longer than their grace, and they are taken for lost."""
        kwok = self._kwok
        if kwok is not None:
            kwok.rest()
        try:
            yield
        finally:
            if kwok is not None:
                kwok.go_on()

    def end_kwok(self) -> None:
        """Stop playing nodes; they stay, and their kubelets are silent."""
        kwok, self._kwok = self._kwok, None
        if kwok is not None:
            kwok.end()


class suppress_status(suppress):  # noqa: N801 - it is used like the function that it extends
    """Ignore an ``RestError`` of one HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(RestError)
        self._status = status

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        """Whether the error is the expected one."""
        return isinstance(error, RestError) and error.status == self._status
