"""Health and reflection, which every gRPC server offers.

Their packages are untyped; this module contains the suppressions.
"""

from collections.abc import Sequence
from typing import Protocol, cast

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

SERVICES = ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection")


class _HealthServicer(Protocol):
    async def set(self, service: str, status: int) -> None: ...

    async def enter_graceful_shutdown(self) -> None: ...


class Health:
    """The `grpc.health.v1` status of each service of a server, and of the whole under the empty name."""

    def __init__(self) -> None:
        self._servicer = cast("_HealthServicer", health.aio.HealthServicer())  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]  # untyped package
        self._names: tuple[str, ...] = ("",)

    async def add_to(self, server: aio.Server, names: Sequence[str]) -> None:
        """Answer on `server` for the services `names`, as NOT_SERVING at first."""
        self._names = ("", *names)
        await self.set_serving(False)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)  # pyright: ignore[reportUnknownMemberType]  # untyped package

    async def set_serving(self, serving: bool) -> None:
        """Set whether the services can be called, and notify watchers."""
        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for name in self._names:
            await self._servicer.set(name, status)

    async def shut_down(self) -> None:
        """Answer NOT_SERVING from now on, whatever is set later."""
        await self._servicer.enter_graceful_shutdown()


def add_reflection(server: aio.Server, names: Sequence[str]) -> None:
    """Let tools list and call the services `names` without their contracts."""
    reflection.enable_server_reflection([*names, *SERVICES], server)  # pyright: ignore[reportUnknownMemberType]  # untyped package
