"""Queries to the leader: explanations, nodes and queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc

from muster_core.models import JobRecord, ReplicaRecord, Resources
from muster_core.scheduling import holds_allocation
from muster_rpc.calls import ServerContext
from muster_rpc.convert import node_to_proto, replica_state_to_proto, resources_to_proto
from muster_rpc.convert.pool import explanation_to_proto
from muster_rpc.internal.v1 import queries_pb2 as pb
from muster_rpc.internal.v1 import queries_pb2_grpc
from muster_rpc.v1 import cluster_service_pb2, job_pb2
from muster_scheduler.queue_queries import QueueQueries
from muster_scheduler.term import LeaderTerm

Held = tuple[JobRecord, ReplicaRecord, Resources]


class PoolServicer(queries_pb2_grpc.PoolServiceServicer):
    """Only the leader answers; a standby is UNAVAILABLE, and the caller tries again."""

    def __init__(self, *, pool: str, term: Callable[[], LeaderTerm | None], queues: QueueQueries) -> None:
        self._pool = pool
        self._term = term
        self._queues = queues

    async def ExplainPlacement(
        self, request: pb.ExplainPlacementRequest, context: ServerContext
    ) -> pb.ExplainPlacementResponse:
        """Explain a job that waits or runs."""
        term = await self._leader_state(context)
        explanation = await term.calculate_with(lambda state: state.explain(request.job_id))
        if explanation is None:
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"job {request.job_id} neither waits nor runs in pool {self._pool}"
            )

        def name_of(job_id: str) -> str:
            record = term.state.record(job_id)
            return record.name if record is not None and record.name else job_id

        return pb.ExplainPlacementResponse(explanation=explanation_to_proto(explanation, name_of=name_of))

    async def ListPoolNodes(
        self, request: pb.ListPoolNodesRequest, context: ServerContext
    ) -> pb.ListPoolNodesResponse:
        """List nodes by name, or one node."""
        term = await self._leader_state(context)
        names = [request.name] if request.name in term.nodes else []
        if not request.name:
            names = sorted(name for name in term.nodes if name > request.after)
        page = names[: request.page_size or None]
        wanted = frozenset(page)
        held: dict[str, list[Held]] = {}
        for what in _held(term):
            if what[1].node in wanted:
                held.setdefault(what[1].node, []).append(what)
        nodes = [self._node(term, name, held.get(name, [])) for name in page]
        return pb.ListPoolNodesResponse(nodes=nodes, more=len(page) < len(names))

    async def ListPoolQueues(
        self, request: pb.ListPoolQueuesRequest, context: ServerContext
    ) -> pb.ListPoolQueuesResponse:
        """List queues by name, or one queue."""
        return await self._queues.list(request, context)

    async def ApplyPoolQueues(
        self, request: pb.ApplyPoolQueuesRequest, context: ServerContext
    ) -> pb.ApplyPoolQueuesResponse:
        """Change the queues as a whole."""
        return await self._queues.apply(request, context)

    def _node(self, term: LeaderTerm, name: str, held: list[Held]) -> cluster_service_pb2.Node:
        replicas = [
            cluster_service_pb2.NodeReplica(
                job_id=record.job_id,
                job=record.name,
                replica=job_pb2.ReplicaRef(
                    role=replica.role, index=replica.index, attempt=replica.attempt, restart=replica.restart
                ),
                state=replica_state_to_proto(replica.state),
                requests=resources_to_proto(requests),
                gpus=replica.gpus,
            )
            for record, replica, requests in held
        ]
        allocated = sum((requests for _, _, requests in held), Resources())
        return node_to_proto(term.nodes[name], pool=self._pool, allocated=allocated, replicas=replicas)

    async def _leader_state(self, context: ServerContext) -> LeaderTerm:
        term = self._term()
        if term is None:
            await context.abort(
                grpc.StatusCode.UNAVAILABLE, "this scheduler does not lead its pool; try again"
            )
        return term


def _held(term: LeaderTerm) -> Iterator[Held]:
    for record in term.state.records.values():
        for replica in record.replicas:
            role = record.job.role(replica.role) if record.job else None
            if role is not None and holds_allocation(record, replica):
                yield record, replica, role.template_of(replica.index).requests
