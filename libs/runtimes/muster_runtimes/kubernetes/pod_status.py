"""What a pod says of the replica in it: a pure reading of one object at one instant.

A replica that ended by itself has EXITED. One that the cluster took away (a kubelet that refuses or evicts it, a drain, a lost node, a
deletion that Muster did not ask for) is REJECTED, with the reason: its gang is placed again, and nobody counts it as a failure.
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

US = 1_000_000

_SIGNALS_FROM, _SIGNALS_TO = 128, 165
_DISRUPTED = "DisruptionTarget"
_ENDED_PHASES = ("Succeeded", "Failed")
_OWN_DEADLINE = "DeadlineExceeded"
_LAST_WORDS = 300
_STUCK = frozenset(
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
    """Whether nothing of the pod runs any more, as its phase says: until then it has its node's resources, even one without any grace."""
    return pod.status.phase in _ENDED_PHASES


def is_force_deleted(pod: Pod) -> bool:
    """Whether the pod has no grace left, and nobody has said yet that it is over: it was deleted by force."""
    return pod.metadata.deletion_grace_period_seconds == 0 and not is_terminated(pod)


def is_lost(pod: Pod, view: PodContext) -> bool:
    """Whether the pod was to have ended by now, and nobody is there to say so."""
    return view.node_unavailable and _is_past_its_end(pod, view.now)


def main_container_ended(pod: Pod) -> bool:
    """Whether the container that decides has ended while others of the pod still run."""
    status = _main(pod)
    return status is not None and status.state.terminated is not None and not is_terminated(pod)


def observe(pod: Pod, replica: ReplicaId, view: PodContext) -> Observation:
    """What stands of a run."""
    status = _main(pod)
    terminated = status.state.terminated if status else None
    running = status.state.running if status else None
    if is_terminated(pod):
        return _over(pod, replica, view, terminated)
    if is_lost(pod, view):
        return _taken(pod, replica, view, f"its node {pod.spec.node_name} is not heard of any more")
    if running is not None or terminated is not None:
        return _running(pod, replica, view, running or terminated)
    at = parse_time(pod.metadata.creation_timestamp) or view.now
    return Observation(
        replica=replica,
        state=ReplicaState.LAUNCHED,
        at=at,
        reason=_said_of(_trouble(pod)),
        address=_address(pod),
    )


def observe_deleted(pod: Pod, replica: ReplicaId, view: PodContext) -> Observation:
    """What stands of a run whose pod is gone; ``pod`` is the last that was seen of it."""
    if is_terminated(pod):
        return observe(pod, replica, view)
    if not view.stop_requested:
        return _taken(pod, replica, view, view.removal_reason or _disruption(pod) or "its pod was deleted")
    return _stopped(pod, replica, view)


def next_check(pod: Pod, view: PodContext) -> int | None:
    """The instant (µs) at which ``observe`` may answer otherwise although nothing of the pod changes."""
    if is_terminated(pod):
        return None
    looks = [_end_of_patience(pod, view) if _trouble(pod) else None, _end_of_deletion(pod)]
    return min((at for at in looks if at is not None and at > view.now), default=None)


def parse_time(text: str | None) -> int:
    """µs since the epoch; 0 for none."""
    return int(datetime.fromisoformat(text).timestamp() * US) if text else 0


def _address(pod: Pod) -> str:
    return pod.metadata.annotations.get(ADDRESS, "")


def _main(pod: Pod) -> ContainerStatus | None:
    name = pod.metadata.annotations.get(MAIN_CONTAINER, "")
    statuses = pod.status.container_statuses
    return next((status for status in statuses if status.name == name), statuses[0] if statuses else None)


def _running(
    pod: Pod, replica: ReplicaId, view: PodContext, container: Running | Terminated | None
) -> Observation:
    started = parse_time(container.started_at if container else None)
    at = started or parse_time(pod.metadata.creation_timestamp) or view.now
    return Observation(
        replica=replica, state=ReplicaState.RUNNING, at=at, address=_address(pod), started_at=at
    )


def _over(pod: Pod, replica: ReplicaId, view: PodContext, terminated: Terminated | None) -> Observation:
    if view.removal_reason and not view.stop_requested and pod.status.phase != "Succeeded":
        return _taken(pod, replica, view, view.removal_reason, terminated)
    disruption = _disruption(pod)
    by_others = (
        pod.metadata.deletion_timestamp and not view.stop_requested and pod.status.phase != "Succeeded"
    )
    reason = pod.status.reason
    if not view.stop_requested and (disruption or (reason and reason != _OWN_DEADLINE)):
        words = ": ".join(filter(None, (reason, pod.status.message))) or disruption
        return _taken(pod, replica, view, words, terminated)
    if by_others and (terminated is None or _is_of_signal(terminated)):
        return _taken(pod, replica, view, "its pod was deleted", terminated)
    if terminated is None:
        return _unseen(pod, replica, view)
    exit_code, signal = _how(terminated)
    return Observation(
        replica=replica,
        state=ReplicaState.EXITED,
        at=parse_time(terminated.finished_at) or view.now,
        exit_code=exit_code,
        signal=signal,
        reason=_why(terminated),
        address=_address(pod),
        started_at=parse_time(terminated.started_at),
    )


def _unseen(pod: Pod, replica: ReplicaId, view: PodContext) -> Observation:
    """It is over, and no container of it has said how."""
    if pod.status.phase == "Succeeded":
        return Observation(
            replica=replica, state=ReplicaState.EXITED, at=view.now, exit_code=0, address=_address(pod)
        )
    if failed := _failed_init(pod):
        return Observation(
            replica=replica,
            state=ReplicaState.EXITED,
            at=view.now,
            exit_code=failed[1].exit_code or 1,
            reason=f"its init container {failed[0]} ended with {failed[1].exit_code}",
        )
    if view.stop_requested:
        return _stopped(pod, replica, view)
    how = "and nobody has said how" if _started(pod) else "before it ran"
    return _taken(pod, replica, view, pod.status.message or f"its pod failed {how}")


def _stopped(pod: Pod, replica: ReplicaId, view: PodContext) -> Observation:
    """It was asked to end and has, and nobody has said how."""
    started = _started(pod)
    if not started:
        words = "stopped before it ran"
        return Observation(replica=replica, state=ReplicaState.REMOVED, at=view.now, reason=words)
    return Observation(
        replica=replica,
        state=ReplicaState.EXITED,
        at=view.now,
        signal=15,
        reason="stopped; how it ended was not seen",
        address=_address(pod),
        started_at=started,
    )


def _taken(
    pod: Pod, replica: ReplicaId, view: PodContext, why: str, terminated: Terminated | None = None
) -> Observation:
    at = parse_time(terminated.finished_at) if terminated else 0
    return Observation(
        replica=replica,
        state=ReplicaState.REJECTED,
        at=at or view.now,
        reason=why,
        address=_address(pod),
        started_at=_started(pod),
        node_lost=view.node_unavailable,
    )


def _started(pod: Pod) -> int:
    status = _main(pod)
    if status is None:
        return 0
    state = status.state
    return parse_time((state.running or state.terminated or Running()).started_at)


def _how(terminated: Terminated) -> tuple[int | None, int | None]:
    """Exit code and signal; what a shell makes of a signal is one, too."""
    code, signal = terminated.exit_code, terminated.signal
    if signal:
        return None, signal
    if _is_of_signal(terminated):
        return None, code - _SIGNALS_FROM
    return code, None


def _is_of_signal(terminated: Terminated) -> bool:
    return bool(terminated.signal) or _SIGNALS_FROM < terminated.exit_code < _SIGNALS_TO


def _why(terminated: Terminated) -> str:
    told = terminated.reason if terminated.reason not in {"", "Completed", "Error"} else ""
    return ": ".join(filter(None, (told, terminated.message.strip()[-_LAST_WORDS:])))


def _disruption(pod: Pod) -> str:
    found = next((c for c in pod.status.conditions if c.type == _DISRUPTED and c.status == "True"), None)
    return ": ".join(filter(None, (found.reason, found.message))) if found else ""


def _failed_init(pod: Pod) -> tuple[str, Terminated] | None:
    for status in pod.status.init_container_statuses:
        if status.state.terminated is not None and status.state.terminated.exit_code:
            return status.name, status.state.terminated
    return None


def _trouble(pod: Pod) -> Mapping[str, Waiting]:
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    waiting = {status.name: status.state.waiting for status in statuses if status.state.waiting is not None}
    return {name: why for name, why in waiting.items() if why.reason in _STUCK}


def startup_failure(pod: Pod, view: PodContext) -> str:
    """Why a pod is to be taken away that does not get to run; empty while it may yet."""
    trouble = _trouble(pod)
    if not trouble or view.now < _end_of_patience(pod, view):
        return ""
    return f"{next(iter(trouble))} did not start within {view.start_s:g} s: {_said_of(trouble)}"


def _said_of(trouble: Mapping[str, Waiting]) -> str:
    why = next(iter(trouble.values()), None)
    return ": ".join(filter(None, (why.reason, why.message))) if why else ""


def _end_of_patience(pod: Pod, view: PodContext) -> int:
    return parse_time(pod.metadata.creation_timestamp) + int(view.start_s * US)


def _end_of_deletion(pod: Pod) -> int | None:
    # The timestamp is that of the end of the grace, not of its beginning.
    return parse_time(pod.metadata.deletion_timestamp) or None


def _is_past_its_end(pod: Pod, now: int) -> bool:
    end = _end_of_deletion(pod)
    return end is not None and now >= end


def ready_condition(conditions: Sequence[StatusCondition]) -> bool:
    """Whether the condition Ready holds."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
