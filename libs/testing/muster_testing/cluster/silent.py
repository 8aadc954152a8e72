"""Nodes that fall silent: their kubelets stop, as when a machine loses its power or its network, and only the lack of leases says so."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Self

from muster_testing.cluster.cluster import Cluster
from muster_testing.cluster.kwok import Kwok, add_nodes

_LEASE_S = 8


class SilentNodes:
    """Nodes with a kwok of their own; ``names`` are theirs."""

    def __init__(self, *, names: list[str], kwok: Kwok) -> None:
        self.names = names
        self._kwok = kwok

    @classmethod
    @asynccontextmanager
    async def added(
        cls, cluster: Cluster, count: int, *, cpu: str, memory: str, folder: Path, gpus: int = 0
    ) -> AsyncGenerator[Self]:
        """Ready nodes that are heard of every two seconds, until ``fall_silent`` or the end of the block, which takes them away."""
        sign = f"silent-{token_hex(3)}"
        kwok = Kwok(kubeconfig=cluster.kubeconfig, folder=folder / sign, played=sign, lease_s=_LEASE_S)
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
                    played=sign,
                )
            yield cls(names=nodes, kwok=kwok)
        finally:
            kwok.end()
            await cluster.remove_nodes(nodes)

    def fall_silent(self) -> None:
        """Nobody hears of them any more; their pods stay as they were."""
        self._kwok.end()
