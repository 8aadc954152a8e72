"""Placement, elasticity and life of a job, on the wire."""

from __future__ import annotations

from typing import Literal

from google.protobuf import duration_pb2

from muster_core.models import (
    CleanPodPolicy,
    ElasticPolicy,
    PlacementPolicy,
    RunPolicy,
    Strategy,
    SuccessPolicy,
)
from muster_rpc.convert.enums import CLEAN_POD_POLICIES, RESTART_SCOPES, STRATEGIES, SUCCESS_POLICIES
from muster_rpc.convert.findings import Findings
from muster_rpc.convert.instants import duration_to_proto
from muster_rpc.v1 import job_pb2

_BACKOFF_LIMIT = RunPolicy().backoff_limit
_Deadline = Literal["active_deadline", "queue_deadline", "start_timeout", "ttl"]


def placement_to_proto(policy: PlacementPolicy) -> job_pb2.PlacementPolicy:
    """The placement policy as a message."""
    return job_pb2.PlacementPolicy(
        strategy=STRATEGIES.to_proto(policy.strategy),
        topology=policy.topology,
        topology_required=policy.topology_required,
        gpu_topology=policy.gpu_topology,
    )


def placement_from_proto(message: job_pb2.PlacementPolicy, findings: Findings) -> PlacementPolicy:
    """The placement policy of a message."""
    return PlacementPolicy(
        strategy=findings.member(STRATEGIES, message.strategy, "placement.strategy") or Strategy.PACK,
        topology=message.topology,
        topology_required=message.topology_required,
        gpu_topology=message.gpu_topology,
    )


def elastic_to_proto(policy: ElasticPolicy) -> job_pb2.ElasticPolicy:
    """The elastic policy as a message."""
    return job_pb2.ElasticPolicy(
        policy=policy.policy,
        cool_down=duration_to_proto(policy.cool_down_s),
        step=policy.step,
    )


def elastic_from_proto(message: job_pb2.ElasticPolicy, findings: Findings) -> ElasticPolicy:
    """The elastic policy of a message."""
    return ElasticPolicy(
        policy=message.policy,
        cool_down_s=findings.seconds(message.cool_down, "elastic.cool_down"),
        step=message.step,
    )


def run_to_proto(policy: RunPolicy) -> job_pb2.RunPolicy:
    """The run policy as a message."""
    scope = policy.restart_scope
    return job_pb2.RunPolicy(
        restart_scope=RESTART_SCOPES.to_proto(scope) if scope else job_pb2.RESTART_SCOPE_UNSPECIFIED,
        backoff_limit=policy.backoff_limit,
        active_deadline=duration_to_proto(policy.active_deadline_s),
        queue_deadline=duration_to_proto(policy.queue_deadline_s),
        start_timeout=duration_to_proto(policy.start_timeout_s),
        ttl=duration_to_proto(policy.ttl_s),
        clean_pod_policy=CLEAN_POD_POLICIES.to_proto(policy.clean_pod_policy),
        success_policy=SUCCESS_POLICIES.to_proto(policy.success_policy),
        suspend=policy.suspend,
    )


def run_from_proto(message: job_pb2.RunPolicy, findings: Findings) -> RunPolicy:
    """The run policy of a message."""
    limit = message.backoff_limit if message.HasField("backoff_limit") else _BACKOFF_LIMIT
    clean = findings.member(CLEAN_POD_POLICIES, message.clean_pod_policy, "run.clean_pod_policy")
    success = findings.member(SUCCESS_POLICIES, message.success_policy, "run.success_policy")
    return RunPolicy(
        restart_scope=findings.member(RESTART_SCOPES, message.restart_scope, "run.restart_scope"),
        backoff_limit=limit,
        active_deadline_s=_deadline(message, "active_deadline", findings),
        queue_deadline_s=_deadline(message, "queue_deadline", findings),
        start_timeout_s=_deadline(message, "start_timeout", findings),
        ttl_s=_deadline(message, "ttl", findings),
        clean_pod_policy=clean or CleanPodPolicy.RUNNING,
        success_policy=success or SuccessPolicy.DEFAULT,
        suspend=message.suspend,
    )


def _deadline(message: job_pb2.RunPolicy, field: _Deadline, findings: Findings) -> int | None:
    duration: duration_pb2.Duration = getattr(message, field)
    return findings.seconds(duration, f"run.{field}") if message.HasField(field) else None
