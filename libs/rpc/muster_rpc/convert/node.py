"""Nodes on the wire: what they offer, what is used, what stands on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from muster_core.models import Node, ReplicaState, Resources
from muster_rpc.convert.enums import replica_state_to_proto
from muster_rpc.convert.resources import resources_to_proto
from muster_rpc.v1 import cluster_service_pb2


def node_to_proto(
    node: Node,
    *,
    pool: str,
    allocated: Resources,
    replicas: Iterable[cluster_service_pb2.NodeReplica] = (),
) -> cluster_service_pb2.Node:
    """The node as a message; ``allocated`` is what Muster's own replicas hold of it."""
    return cluster_service_pb2.Node(
        name=node.name,
        pool=pool,
        allocatable=resources_to_proto(node.allocatable),
        allocated=resources_to_proto(allocated),
        foreign=resources_to_proto(node.foreign),
        labels=node.labels,
        taints=[
            cluster_service_pb2.Taint(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in node.taints
        ],
        ready=node.ready,
        unschedulable=node.unschedulable,
        address=node.address,
        gpu_memory_bytes=node.gpu_memory,
        replicas=replicas,
    )


def node_replica_to_proto(
    *,
    name: str,
    job: str,
    job_id: str,
    state: ReplicaState,
    requests: Resources,
    gpus: Sequence[int] = (),
) -> cluster_service_pb2.NodeReplica:
    """One replica that stands on a node; ``name`` is that of ``muster_core.models.replica_name``, ``job`` the name of its job."""
    return cluster_service_pb2.NodeReplica(
        name=name,
        job=job,
        job_id=job_id,
        state=replica_state_to_proto(state),
        requests=resources_to_proto(requests),
        gpus=gpus,
    )
