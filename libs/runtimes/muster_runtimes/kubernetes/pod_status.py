"""From a pod to the observation of its replica: a pure function of one object at one instant.

A replica that ended by itself has EXITED. A replica that the cluster removed (rejection or eviction by the kubelet, a drain, a lost
node, a deletion that Muster did not request) is REJECTED with a reason: its gang is placed again, and it does not count as a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from muster_core.models import ReplicaState
from muster_runtimes.kubernetes.labels import ADDRESS, MAIN_CONTAINER
from muster_runtimes.kubernetes.objects import (
    ContainerStatus,
    Pod,
    Running,
    StatusCondition,
    Terminated,
    Waiting,
)
from muster_runtimes.protocols import Observation, ReplicaId

US_PER_S = 1_000_000

_SIGNALS_FROM, _SIGNALS_TO = 128, 165
_DISRUPTED = "DisruptionTarget"
_ENDED_PHASES = ("Succeeded", "Failed")
_OWN_DEADLINE = "DeadlineExceeded"
_MAX_MESSAGE_CHARS = 300
_STARTUP_FAILURES = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "RunContainerError",
    }
)


class PodContext(msgspec.Struct, frozen=True, kw_only=True):
    """What is known besides the pod itself, at ``now`` (µs).

    Attributes:
        stop_requested: Muster has asked for the end of the pod.
        removal_reason: Why Muster removes a pod whose replica is still wanted; empty if it does not.
        node_unavailable: The node is deleted or not ready.
        start_s: How long a container may fail to start, in seconds.
    """

    now: int
    stop_requested: bool = False
    removal_reason: str = ""
    node_unavailable: bool = False
    start_s: float = 120.0


def is_terminated(pod: Pod) -> bool:
    """Whether the phase says that the pod has ended; until then it holds its node's resources, even after a forced deletion."""
    return pod.status.phase in _ENDED_PHASES


def is_force_deleted(pod: Pod) -> bool:
    """Whether the pod is deleted without a grace period and not terminated yet."""
    return pod.metadata.deletion_grace_period_seconds == 0 and not is_terminated(pod)


def is_lost(pod: Pod, context: PodContext) -> bool:
    """Whether the deadline of the pod's deletion has passed and its node is unavailable."""
    return context.node_unavailable and _is_past_deletion(pod, context.now)


def main_container_ended(pod: Pod) -> bool:
    """Whether the main container has ended while other containers of the pod run."""
    status = _main(pod)
    return status is not None and status.state.terminated is not None and not is_terminated(pod)


def observe(pod: Pod, replica: ReplicaId, context: PodContext) -> Observation:
    """Return the observation of a run from its pod."""
    status = _main(pod)
    terminated = status.state.terminated if status else None
    running = status.state.running if status else None
    if is_terminated(pod):
        return _over(pod, replica, context, terminated)
    if is_lost(pod, context):
        return _rejected(pod, replica, context, f"node {pod.spec.node_name} is unavailable")
    if running is not None or terminated is not None:
        return _running(pod, replica, context, running or terminated)
    at = parse_time(pod.metadata.creation_timestamp) or context.now
    return Observation(
        replica=replica,
        state=ReplicaState.LAUNCHED,
        at=at,
        reason=_describe(_startup_errors(pod)),
        address=_address(pod),
    )


def observe_deleted(pod: Pod, replica: ReplicaId, context: PodContext) -> Observation:
    """Return the observation of a run whose pod is deleted; ``pod`` is its last version."""
    if is_terminated(pod):
        return observe(pod, replica, context)
    if not context.stop_requested:
        return _rejected(
            pod, replica, context, context.removal_reason or _disruption(pod) or "the pod was deleted"
        )
    return _stopped(pod, replica, context)


def next_check(pod: Pod, context: PodContext) -> int | None:
    """Return the time (µs) at which the observation may change although the pod does not; None if never."""
    if is_terminated(pod):
        return None
    times = [_startup_deadline(pod, context) if _startup_errors(pod) else None, _deletion_deadline(pod)]
    return min((at for at in times if at is not None and at > context.now), default=None)


def parse_time(text: str | None) -> int:
    """Convert a Kubernetes timestamp to µs since the epoch; 0 if there is none."""
    return int(datetime.fromisoformat(text).timestamp() * US_PER_S) if text else 0


def _address(pod: Pod) -> str:
    return pod.metadata.annotations.get(ADDRESS, "")


def _main(pod: Pod) -> ContainerStatus | None:
    name = pod.metadata.annotations.get(MAIN_CONTAINER, "")
    statuses = pod.status.container_statuses
    return next((status for status in statuses if status.name == name), statuses[0] if statuses else None)


def _running(
    pod: Pod, replica: ReplicaId, context: PodContext, container: Running | Terminated | None
) -> Observation:
    started = parse_time(container.started_at if container else None)
    at = started or parse_time(pod.metadata.creation_timestamp) or context.now
    return Observation(
        replica=replica, state=ReplicaState.RUNNING, at=at, address=_address(pod), started_at=at
    )


def _over(pod: Pod, replica: ReplicaId, context: PodContext, terminated: Terminated | None) -> Observation:
    if context.removal_reason and not context.stop_requested and pod.status.phase != "Succeeded":
        return _rejected(pod, replica, context, context.removal_reason, terminated)
    disruption = _disruption(pod)
    deleted_by_others = (
        pod.metadata.deletion_timestamp and not context.stop_requested and pod.status.phase != "Succeeded"
    )
    reason = pod.status.reason
    if not context.stop_requested and (disruption or (reason and reason != _OWN_DEADLINE)):
        why = ": ".join(filter(None, (reason, pod.status.message))) or disruption
        return _rejected(pod, replica, context, why, terminated)
    if deleted_by_others and (terminated is None or _ended_by_signal(terminated)):
        return _rejected(pod, replica, context, "the pod was deleted", terminated)
    if terminated is None:
        return _unexplained(pod, replica, context)
    exit_code, signal = _exit(terminated)
    return Observation(
        replica=replica,
        state=ReplicaState.EXITED,
        at=parse_time(terminated.finished_at) or context.now,
        exit_code=exit_code,
        signal=signal,
        reason=_exit_reason(terminated),
        address=_address(pod),
        started_at=parse_time(terminated.started_at),
    )


def _unexplained(pod: Pod, replica: ReplicaId, context: PodContext) -> Observation:
    """The pod is terminated without a status of its main container."""
    if pod.status.phase == "Succeeded":
        return Observation(
            replica=replica, state=ReplicaState.EXITED, at=context.now, exit_code=0, address=_address(pod)
        )
    if failed := _failed_init(pod):
        return Observation(
            replica=replica,
            state=ReplicaState.EXITED,
            at=context.now,
            exit_code=failed[1].exit_code or 1,
            reason=f"init container {failed[0]} failed with exit code {failed[1].exit_code}",
        )
    if context.stop_requested:
        return _stopped(pod, replica, context)
    how = "without an exit code" if _started_at(pod) else "before it started"
    return _rejected(pod, replica, context, pod.status.message or f"the pod failed {how}")


def _stopped(pod: Pod, replica: ReplicaId, context: PodContext) -> Observation:
    """The pod ended on request, without a status of its main container."""
    started = _started_at(pod)
    if not started:
        return Observation(
            replica=replica, state=ReplicaState.REMOVED, at=context.now, reason="stopped before it started"
        )
    return Observation(
        replica=replica,
        state=ReplicaState.EXITED,
        at=context.now,
        signal=15,
        reason="stopped; its exit code is unknown",
        address=_address(pod),
        started_at=started,
    )


def _rejected(
    pod: Pod, replica: ReplicaId, context: PodContext, why: str, terminated: Terminated | None = None
) -> Observation:
    at = parse_time(terminated.finished_at) if terminated else 0
    return Observation(
        replica=replica,
        state=ReplicaState.REJECTED,
        at=at or context.now,
        reason=why,
        address=_address(pod),
        started_at=_started_at(pod),
        node_lost=context.node_unavailable,
    )


def _started_at(pod: Pod) -> int:
    status = _main(pod)
    if status is None:
        return 0
    state = status.state
    return parse_time((state.running or state.terminated or Running()).started_at)


def _exit(terminated: Terminated) -> tuple[int | None, int | None]:
    """Return exit code and signal; a shell's exit code for a signal counts as the signal."""
    code, signal = terminated.exit_code, terminated.signal
    if signal:
        return None, signal
    if _ended_by_signal(terminated):
        return None, code - _SIGNALS_FROM
    return code, None


def _ended_by_signal(terminated: Terminated) -> bool:
    return bool(terminated.signal) or _SIGNALS_FROM < terminated.exit_code < _SIGNALS_TO


def _exit_reason(terminated: Terminated) -> str:
    reason = terminated.reason if terminated.reason not in {"", "Completed", "Error"} else ""
    return ": ".join(filter(None, (reason, terminated.message.strip()[-_MAX_MESSAGE_CHARS:])))


def _disruption(pod: Pod) -> str:
    found = next((c for c in pod.status.conditions if c.type == _DISRUPTED and c.status == "True"), None)
    return ": ".join(filter(None, (found.reason, found.message))) if found else ""


def _failed_init(pod: Pod) -> tuple[str, Terminated] | None:
    for status in pod.status.init_container_statuses:
        if status.state.terminated is not None and status.state.terminated.exit_code:
            return status.name, status.state.terminated
    return None


def _startup_errors(pod: Pod) -> Mapping[str, Waiting]:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waiting = {status.name: status.state.waiting for status in statuses if status.state.waiting is not None}
    return {name: why for name, why in waiting.items() if why.reason in _STARTUP_FAILURES}


def startup_failure(pod: Pod, context: PodContext) -> str:
    """Return why a pod that fails to start is to be removed; empty while it may still start."""
    errors = _startup_errors(pod)
    if not errors or context.now < _startup_deadline(pod, context):
        return ""
    return f"{next(iter(errors))} did not start within {context.start_s:g} s: {_describe(errors)}"


def _describe(errors: Mapping[str, Waiting]) -> str:
    why = next(iter(errors.values()), None)
    return ": ".join(filter(None, (why.reason, why.message))) if why else ""


def _startup_deadline(pod: Pod, context: PodContext) -> int:
    return parse_time(pod.metadata.creation_timestamp) + int(context.start_s * US_PER_S)


def _deletion_deadline(pod: Pod) -> int | None:
    # The timestamp is the end of the grace period, not its beginning.
    return parse_time(pod.metadata.deletion_timestamp) or None


def _is_past_deletion(pod: Pod, now: int) -> bool:
    end = _deletion_deadline(pod)
    return end is not None and now >= end


def is_ready(conditions: Sequence[StatusCondition]) -> bool:
    """Whether the condition Ready is true."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
