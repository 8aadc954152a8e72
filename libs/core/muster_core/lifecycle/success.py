"""When a job has succeeded, by framework. Source: the training operators' documented success rules."""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.models import Framework, Job, JobRecord, ReplicaRecord, ReplicaState, SuccessPolicy

_LEADERS = {
    Framework.TENSORFLOW: ("chief", "master"),
    Framework.PYTORCH: ("master",),
    Framework.MPI: ("launcher",),
    Framework.HOROVOD: ("launcher",),
    Framework.XGBOOST: ("master",),
    Framework.PADDLE: ("master",),
    Framework.MXNET: ("scheduler",),
}


def succeeded(replica: ReplicaRecord) -> bool:
    """Whether it exited by itself with 0."""
    return replica.state is ReplicaState.EXITED and replica.exit_code == 0 and not replica.signal


def success_of(record: JobRecord, job: Job) -> str | None:
    """The sentence that says why the job has succeeded, or ``None`` if it has not."""
    members = record.members()
    leaders = [m for m in members if m.role in _LEADERS.get(job.framework, ())]
    if leaders:
        return _all(leaders)
    workers = [m for m in members if m.role == "worker"]
    if job.framework is Framework.TENSORFLOW and workers:
        return _tensorflow(workers, job.run.success_policy)
    if job.framework is Framework.PYTORCH and workers and _elastic(job):
        return next((f"{m.role}-{m.index} exited with 0" for m in workers if succeeded(m)), None)
    return _all([m for m in members if m.role != "ps"] or list(members))


def _tensorflow(workers: Sequence[ReplicaRecord], policy: SuccessPolicy) -> str | None:
    first = next((w for w in workers if w.index == 0), None)
    if policy is SuccessPolicy.DEFAULT and first and succeeded(first):
        return "worker-0 exited with 0"
    return _all(workers)


def _elastic(job: Job) -> bool:
    return any(role.min < role.max for role in job.roles)


def _all(replicas: Sequence[ReplicaRecord]) -> str | None:
    if not replicas or not all(succeeded(r) for r in replicas):
        return None
    if len(replicas) == 1:
        return f"{replicas[0].role}-{replicas[0].index} exited with 0"
    roles = sorted({r.role for r in replicas})
    return f"all {len(replicas)} replicas of {', '.join(roles)} exited with 0"
