"""The query about the runtime itself; any instance answers it."""

from __future__ import annotations

from muster_rpc.calls import ServerContext
from muster_rpc.internal.v1 import queries_pb2 as pb, queries_pb2_grpc
from muster_runtimes import AccessibleRuntime


class RuntimeServicer(queries_pb2_grpc.RuntimeServiceServicer):
    """Serves checks of the runtime."""

    def __init__(self, *, runtime: AccessibleRuntime) -> None:
        self._runtime = runtime

    async def CheckRuntime(
        self, request: pb.CheckRuntimeRequest, context: ServerContext
    ) -> pb.CheckRuntimeResponse:
        """Check the runtime."""
        check = await self._runtime.check()
        return pb.CheckRuntimeResponse(
            runtime=check.name, problem=check.problem, missing_permissions=check.missing_permissions
        )
