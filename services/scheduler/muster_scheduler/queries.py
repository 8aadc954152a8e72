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
from muster_rpc.v1 import cluster_service_pb2, job_pb2
from muster_scheduler.queue_queries import LeaderState, PoolQueueServicer
from muster_scheduler.term import LeaderTerm

Allocation = tuple[JobRecord, ReplicaRecord, Resources]


class PoolServicer(PoolQueueServicer):
    """The queries of a pool."""

    def __init__(
        self, *, pool: str, leader_state: Callable[[], LeaderState | None], clock: Callable[[], int]
    ) -> None:
        super().__init__(leader_state=leader_state, clock=clock)
        self._pool = pool

    async def ExplainPlacement(
        self, request: pb.ExplainPlacementRequest, context: ServerContext
    ) -> pb.ExplainPlacementResponse:
        """Explain a job that waits or runs."""
        term = (await self.require_leader(context)).term
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
        term = (await self.require_leader(context)).term
        names = [request.name] if request.name in term.nodes else []
        if not request.name:
            names = sorted(name for name in term.nodes if name > request.after)
        page = names[: request.page_size or None]
        wanted = frozenset(page)
        by_node: dict[str, list[Allocation]] = {}
        for one in _allocations(term):
            if one[1].node in wanted:
                by_node.setdefault(one[1].node, []).append(one)
        nodes = [self._node(term, name, by_node.get(name, [])) for name in page]
        return pb.ListPoolNodesResponse(nodes=nodes, more=len(page) < len(names))

    def _node(self, term: LeaderTerm, name: str, allocations: list[Allocation]) -> cluster_service_pb2.Node:
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
            for record, replica, requests in allocations
        ]
        allocated = sum((requests for _, _, requests in allocations), Resources())
        return node_to_proto(term.nodes[name], pool=self._pool, allocated=allocated, replicas=replicas)


def _allocations(term: LeaderTerm) -> Iterator[Allocation]:
    for record in term.state.records.values():
        for replica in record.replicas:
            role = record.job.role(replica.role) if record.job else None
            if role is not None and holds_allocation(record, replica):
                yield record, replica, role.template_of(replica.index).requests
