"""The enums of the core and of the proto, paired by the names of their members, so that neither can gain one unseen."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Generic, TypeVar

from muster_core.models import (
    Category,
    CleanPodPolicy,
    Convention,
    Framework,
    JobKind,
    Phase,
    QueueChangeKind,
    ReplicaState,
    RestartPolicy,
    RestartScope,
    Severity,
    Strategy,
    SuccessPolicy,
)
from muster_rpc.v1 import job_pb2, queue_service_pb2

CoreT = TypeVar("CoreT", bound=enum.StrEnum)
ProtoT = TypeVar("ProtoT", bound=int)


class EnumPair(Generic[CoreT, ProtoT]):
    """One enum in both forms. ``number_of`` gives the proto's number of a full name such as ``PHASE_QUEUED``."""

    def __init__(self, core: type[CoreT], *, prefix: str, number_of: Callable[[str], ProtoT]) -> None:
        self._to_proto = {member: number_of(f"{prefix}_{member.name}") for member in core}
        self._from_proto: dict[int, CoreT] = {number: member for member, number in self._to_proto.items()}

    @property
    def members(self) -> tuple[CoreT, ...]:
        """Every member of the core's enum."""
        return tuple(self._to_proto)

    def to_proto(self, member: CoreT) -> ProtoT:
        """The number of a member."""
        return self._to_proto[member]

    def from_proto(self, number: int) -> CoreT | None:
        """The member of a number; None for 0 (not said) and for numbers that nobody knows."""
        return self._from_proto.get(number)


FRAMEWORKS = EnumPair(Framework, prefix="FRAMEWORK", number_of=job_pb2.Framework.Value)
JOB_KINDS = EnumPair(JobKind, prefix="JOB_KIND", number_of=job_pb2.JobKind.Value)
CATEGORIES = EnumPair(Category, prefix="CATEGORY", number_of=job_pb2.Category.Value)
CONVENTIONS = EnumPair(Convention, prefix="CONVENTION", number_of=job_pb2.Convention.Value)
RESTART_POLICIES = EnumPair(RestartPolicy, prefix="RESTART_POLICY", number_of=job_pb2.RestartPolicy.Value)
RESTART_SCOPES = EnumPair(RestartScope, prefix="RESTART_SCOPE", number_of=job_pb2.RestartScope.Value)
CLEAN_POD_POLICIES = EnumPair(
    CleanPodPolicy, prefix="CLEAN_POD_POLICY", number_of=job_pb2.CleanPodPolicy.Value
)
SUCCESS_POLICIES = EnumPair(SuccessPolicy, prefix="SUCCESS_POLICY", number_of=job_pb2.SuccessPolicy.Value)
STRATEGIES = EnumPair(Strategy, prefix="STRATEGY", number_of=job_pb2.Strategy.Value)
PHASES = EnumPair(Phase, prefix="PHASE", number_of=job_pb2.Phase.Value)
REPLICA_STATES = EnumPair(ReplicaState, prefix="REPLICA_STATE", number_of=job_pb2.ReplicaState.Value)
SEVERITIES = EnumPair(Severity, prefix="SEVERITY", number_of=job_pb2.Severity.Value)
QUEUE_CHANGES = EnumPair(
    QueueChangeKind, prefix="QUEUE_CHANGE_KIND", number_of=queue_service_pb2.QueueChangeKind.Value
)


def phase_to_proto(phase: Phase) -> job_pb2.Phase.ValueType:
    """The phase's number."""
    return PHASES.to_proto(phase)


def phase_from_proto(number: int) -> Phase | None:
    """The phase of a number; None when there is no such phase."""
    return PHASES.from_proto(number)


def replica_state_to_proto(state: ReplicaState) -> job_pb2.ReplicaState.ValueType:
    """The state's number."""
    return REPLICA_STATES.to_proto(state)
