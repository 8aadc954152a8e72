"""Success and restart rules of each framework.

Source: the training operators' documented success rules.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster_core.frameworks import is_elastic
from muster_core.models import (
    Framework,
    Job,
    JobRecord,
    ReplicaRecord,
    ReplicaState,
    RestartScope,
    SuccessPolicy,
)

_LEADERS = {
    Framework.TENSORFLOW: ("chief", "master"),
    Framework.PYTORCH: ("master",),
    Framework.MPI: ("launcher",),
    Framework.HOROVOD: ("launcher",),
    Framework.XGBOOST: ("master",),
    Framework.PADDLE: ("master",),
    Framework.MXNET: ("scheduler",),
}
"""The roles whose success is the job's."""

_SERVERS = ("ps", "server")
"""Roles that serve the others and need not end by themselves."""

_WORKERS_ALONE = frozenset({Framework.TENSORFLOW, Framework.MXNET})
"""Frameworks in which, without a leader, every other role serves the workers."""

_STALLED_BY_A_LOSS = frozenset(
    {Framework.PYTORCH, Framework.MPI, Framework.HOROVOD, Framework.XGBOOST, Framework.PADDLE}
)
"""Frameworks whose members wait for a lost one, unless they are elastic."""


def succeeded(replica: ReplicaRecord) -> bool:
    """Return whether a replica exited with 0 by itself; one that was asked to end has not."""
    ended_well = replica.state is ReplicaState.EXITED and replica.exit_code == 0 and not replica.signal
    return ended_well and not replica.restarting


def success_of(record: JobRecord, job: Job) -> str | None:
    """Return the message of a successful job, or ``None``."""
    members = record.gang()
    leaders = [m for m in members if m.role in _LEADERS.get(job.framework, ())]
    if leaders:
        return _all(leaders)
    workers = [m for m in members if m.role == "worker"]
    if workers and job.framework is Framework.TENSORFLOW and job.run.success_policy is SuccessPolicy.DEFAULT:
        return _any([w for w in workers if w.index == 0]) or _all(workers)
    if workers and job.framework is Framework.PYTORCH and is_elastic(job):
        return _any(workers)
    if workers and job.framework in _WORKERS_ALONE:
        return _all(workers)
    return _all([m for m in members if m.role not in _SERVERS] or list(members))


def restart_scope_of(job: Job) -> RestartScope:
    """Return what restarts when one replica fails: the job's choice, else the whole gang if a lost member stalls the
    others.

    JAX processes are counted once, at their start, so even an elastic job restarts as a whole.
    """
    if job.run.restart_scope is not None:
        return job.run.restart_scope
    stalled = job.framework in _STALLED_BY_A_LOSS and not is_elastic(job)
    return RestartScope.GANG if stalled or job.framework is Framework.JAX else RestartScope.REPLICA


def _any(replicas: Sequence[ReplicaRecord]) -> str | None:
    return next((_all([replica]) for replica in replicas if succeeded(replica)), None)


def _all(replicas: Sequence[ReplicaRecord]) -> str | None:
    if not replicas or not all(succeeded(r) for r in replicas):
        return None
    if len(replicas) == 1:
        return f"{replicas[0].role}-{replicas[0].index} exited with 0"
    roles = sorted({r.role for r in replicas})
    return f"all {len(replicas)} replicas of {', '.join(roles)} exited with 0"
