"""Answers of the leader: why a job stands where it stands, and what stands on the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc

from muster_core.models import JobRecord, ReplicaRecord, Resources, replica_name
from muster_rpc.convert import node_replica_to_proto, node_to_proto, phase_to_proto, reason_to_proto
from muster_rpc.server import ServerContext
from muster_rpc.v1 import cluster_service_pb2, internal_service_pb2_grpc
from muster_rpc.v1 import internal_service_pb2 as pb
from muster_scheduler.handlers import Term

Held = tuple[JobRecord, ReplicaRecord, Resources]


class PoolServicer(internal_service_pb2_grpc.PoolServiceServicer):
    """Only the leader knows; a standby says so, and the question is asked again."""

    def __init__(self, *, pool: str, term: Callable[[], Term | None]) -> None:
        self._pool = pool
        self._term = term

    async def ExplainPlacement(
        self, request: pb.ExplainPlacementRequest, context: ServerContext
    ) -> pb.ExplainPlacementResponse:
        """See the proto."""
        state = (await self._leading(context)).state
        explanation = state.explain(request.job_id)
        if explanation is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"job {request.job_id} neither waits nor runs in pool {self._pool}"
            )
        ahead = (state.record(job_id) for job_id in explanation.ahead)
        return pb.ExplainPlacementResponse(
            phase=phase_to_proto(explanation.phase),
            reason=reason_to_proto(explanation.reason),
            position=explanation.position,
            ahead=[record.name for record in ahead if record is not None],
        )

    async def ListPoolNodes(
        self, request: pb.ListPoolNodesRequest, context: ServerContext
    ) -> pb.ListPoolNodesResponse:
        """See the proto."""
        term = await self._leading(context)
        held: dict[str, list[Held]] = {}
        for what in _held(term):
            held.setdefault(what[1].node, []).append(what)
        names = [request.name] if request.name else sorted(term.nodes)
        nodes = [self._node(term, name, held.get(name, [])) for name in names if name in term.nodes]
        return pb.ListPoolNodesResponse(nodes=nodes)

    async def ListPoolQueues(
        self, request: pb.ListPoolQueuesRequest, context: ServerContext
    ) -> pb.ListPoolQueuesResponse:
        """See the proto."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "queues cannot be listed in this version")

    def _node(self, term: Term, name: str, held: list[Held]) -> cluster_service_pb2.Node:
        replicas = [
            node_replica_to_proto(
                name=replica_name(record.name, replica.role, replica.index),
                job_id=record.job_id,
                state=replica.state,
                requests=requests,
                gpus=replica.gpus,
            )
            for record, replica, requests in held
        ]
        allocated = sum((requests for _, _, requests in held), Resources())
        return node_to_proto(term.nodes[name], pool=self._pool, allocated=allocated, replicas=replicas)

    async def _leading(self, context: ServerContext) -> Term:
        term = self._term()
        if term is None:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "this scheduler does not lead its pool; try again"
            )
        return term


def _held(term: Term) -> Iterator[Held]:
    for record in term.state.records.values():
        for replica in record.replicas:
            role = record.job.role(replica.role) if record.job else None
            if role is not None and not replica.ended:
                yield record, replica, role.template_of(replica.index).requests
