"""What may be started again: a gang that has its room, or one of its replicas that runs."""

from __future__ import annotations

from muster_core.events import Command, CommandRequested
from muster_core.lifecycle.moves import ACTIVE_PHASES
from muster_rpc.convert import phase_from_proto
from muster_rpc.v1 import job_pb2

_UNDER_WAY = (job_pb2.REPLICA_STATE_LAUNCHED, job_pb2.REPLICA_STATE_RUNNING)


class CannotRestart(ValueError):
    """Nothing that could be started again runs; the message says why."""


def restart_command(job: job_pb2.Job, replica: str, request_id: str) -> CommandRequested:
    """The command that starts ``job`` again, or the one replica ``ROLE-INDEX`` of it; raises ``CannotRestart``."""
    phase = phase_from_proto(job.status.phase)
    if phase not in ACTIVE_PHASES:
        raise CannotRestart(f"job {job.name or job.job_id} has nothing to start again: it is {phase}")
    command = CommandRequested(command=Command.RESTART, request_id=request_id)
    if not replica:
        return command
    short = replica.removeprefix(f"{job.name}-")
    found = [one for one in _members(job) if f"{one.role}-{one.index}" == short]
    if not found:
        raise CannotRestart(f"job {job.name} has no replica {short} now")
    if found[0].state not in _UNDER_WAY:
        state = job_pb2.ReplicaState.Name(found[0].state).removeprefix("REPLICA_STATE_").lower()
        raise CannotRestart(f"replica {short} of job {job.name} does not run: it is {state}")
    return CommandRequested(
        command=Command.RESTART, request_id=request_id, role=found[0].role, target=found[0].index
    )


def _members(job: job_pb2.Job) -> list[job_pb2.Replica]:
    return [one for one in job.status.replicas if one.attempt == job.status.attempt and not one.leaving]
