"""The gRPC server of a service: health, reflection, tracing, deadlines, graceful shutdown.

The packages of health and reflection are untyped; this module contains the suppressions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, cast

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from muster_service.grpc_calls import CallInterceptor
from muster_service.grpc_client import SERVER_OPTIONS
from muster_service.metrics import Metrics
from muster_service.tracing import Telemetry

SERVICES = ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection")


class _HealthServicer(Protocol):
    async def set(self, service: str, status: int) -> None: ...

    async def enter_graceful_shutdown(self) -> None: ...


class Health:
    """The `grpc.health.v1` status of each service of a server, and of the whole under the empty name."""

    def __init__(self) -> None:
        self._servicer = cast("_HealthServicer", health.aio.HealthServicer())  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]  # untyped package
        self._names: tuple[str, ...] = ("",)
        self._serving = False
        self._stopped: set[str] = set()

    async def add_to(self, server: aio.Server, names: Sequence[str]) -> None:
        """Answer on `server` for the services `names`, as NOT_SERVING at first."""
        self._names = ("", *names)
        await self.set_serving(False)
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)  # pyright: ignore[reportUnknownMemberType]  # untyped package

    async def set_serving(self, serving: bool) -> None:
        """Set whether the server can be called, and notify watchers."""
        self._serving = serving
        for name in self._names:
            await self._report(name)

    async def set_service(self, name: str, serving: bool) -> None:
        """Set whether the service `name` can be called while the server can."""
        if serving:
            self._stopped.discard(name)
        else:
            self._stopped.add(name)
        await self._report(name)

    async def _report(self, name: str) -> None:
        is_serving = self._serving and name not in self._stopped
        response = health_pb2.HealthCheckResponse
        await self._servicer.set(name, response.SERVING if is_serving else response.NOT_SERVING)

    async def shut_down(self) -> None:
        """Answer NOT_SERVING from now on, whatever is set later."""
        await self._servicer.enter_graceful_shutdown()


def add_reflection(server: aio.Server, names: Sequence[str]) -> None:
    """Let tools list and call the services `names` without their contracts."""
    reflection.enable_server_reflection([*names, *SERVICES], server)  # pyright: ignore[reportUnknownMemberType]  # untyped package


log = logging.getLogger(__name__)

AddServicer = Callable[..., None]
Service = tuple[AddServicer, object]

_STREAM_GRACE_S = 0.5


class GrpcHost:
    """Serves servicers at one address.

    Args:
        address: `host:port`; port 0 binds a free one, available as `port`.
        services: pairs of a generated `add_...Servicer_to_server` and its servicer, whose methods are coroutines.
        default_timeout_s: the deadline of a call without one.
        stream_timeout_s: the same for streaming calls; None means none.
        interceptors: run inside the host's own, in this order; for authentication and the like.
        credentials: for TLS; default plain text.
    """

    def __init__(
        self,
        *,
        address: str,
        services: Iterable[Service],
        telemetry: Telemetry,
        metrics: Metrics,
        default_timeout_s: float = 30.0,
        stream_timeout_s: float | None = None,
        interceptors: Sequence[aio.ServerInterceptor] = (),
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self._address = address
        self._services = list(services)
        self._credentials = credentials
        self._calls = CallInterceptor(
            telemetry=telemetry,
            metrics=metrics,
            default_timeout_s=default_timeout_s,
            stream_timeout_s=stream_timeout_s,
        )
        self._interceptors = (self._calls, *interceptors)
        self._health = Health()
        self._server: aio.Server | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The bound port; 0 before `start`."""
        return self._port

    @property
    def address(self) -> str:
        """The bound `host:port`."""
        return f"{self._address.rpartition(':')[0]}:{self._port}"

    async def start(self) -> None:
        """Bind and answer, as NOT_SERVING until `set_serving`.

        Raises:
            OSError: the address cannot be bound.
        """
        server = aio.server(interceptors=self._interceptors, options=SERVER_OPTIONS)
        registrar = _Registrar(server, self._calls.prepare)
        for add, servicer in self._services:
            add(servicer, registrar)
        await self._health.add_to(server, registrar.names)
        add_reflection(server, registrar.names)
        try:
            if self._credentials is None:
                self._port = server.add_insecure_port(self._address)
            else:
                self._port = server.add_secure_port(self._address, self._credentials)
        except RuntimeError as refused:
            raise OSError(f"cannot listen on {self._address}: {refused}") from refused
        self._server = server
        await server.start()

    async def set_serving(self, serving: bool) -> None:
        """Set the health of the whole, and of each service that is not set apart."""
        await self._health.set_serving(serving)

    async def set_service(self, name: str, serving: bool) -> None:
        """Set whether the service `name` is one that serves while the whole does."""
        await self._health.set_service(name, serving)

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones finish for `grace_s` seconds, then cancel them.

        Streams, which might never end, are ended early with UNAVAILABLE so that their clients call another instance.
        """
        if self._server is None:
            return
        await self._health.shut_down()
        self._calls.end_streams(min(_STREAM_GRACE_S, grace_s))
        await self._server.stop(grace_s)


class _Registrar:
    """Stands in for the server while servicers are added, and records the names of their services.

    Args:
        server: the server.
        prepare: called with each service and its methods.
    """

    def __init__(self, server: aio.Server, prepare: Callable[[str, Iterable[str]], None]) -> None:
        self._server = server
        self._prepare = prepare
        self.names: list[str] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Pass on, and record the names."""
        self.names += [
            handler.service_name() for handler in handlers if isinstance(handler, grpc.ServiceRpcHandler)
        ]
        self._server.add_generic_rpc_handlers(tuple(handlers))

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, object]) -> None:
        """Take the names of the methods only: the generic handlers, which generated code adds too, answer the calls."""
        self._prepare(service, handlers)
