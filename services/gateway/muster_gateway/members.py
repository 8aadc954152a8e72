"""Which replica of a job somebody means who wants to get into one, and which of its ports."""

from __future__ import annotations

import difflib

import msgspec

from muster_core.frameworks.ports import port_of as port_in_cluster
from muster_core.models import TERMINAL_PHASES
from muster_rpc.convert import job_from_proto, phase_from_proto
from muster_rpc.v1 import job_pb2

_LEADERS = ("chief", "master", "launcher")
_WORKER = "worker"
_SUGGESTED = 3
_LARGEST_PORT = 65535


class NoSuchMember(LookupError):
    """The job has no such replica; the message says which it has."""


class NotThere(ValueError):
    """The replica does not run, or the port is not known; the message says why."""


class Port(msgspec.Struct, frozen=True):
    """A port of a replica: ``number`` as it was asked for, ``actual`` as it is where the replica runs, its name where it is declared."""

    number: int
    actual: int
    name: str = ""


def member_of(job: job_pb2.Job, wanted: str) -> job_pb2.Replica:
    """The replica that ``wanted`` names (``worker-3``, ``demo-worker-3``, ``worker``), or the one that leads, which runs.

    Raises ``NoSuchMember`` and ``NotThere``.
    """
    name = job.name or job.job_id
    if phase_from_proto(job.status.phase) in TERMINAL_PHASES:
        raise NotThere(f"job {name} has ended: {phase_from_proto(job.status.phase)}")
    short = wanted.removeprefix(f"{job.name}-".lower())
    if short:
        _check(job, short)
    members = [
        one
        for one in job.status.replicas
        if one.attempt == job.status.attempt and not one.leaving and _matches(one, short)
    ]
    running = [one for one in members if one.state == job_pb2.REPLICA_STATE_RUNNING]
    if running:
        return min(running, key=lambda one: (_rank(job, one.role), one.index, -one.restart))
    if not members:
        phase = phase_from_proto(job.status.phase)
        because = f": {job.status.reason.message}" if job.status.reason.message else ""
        raise NotThere(
            f"{f'{short} of job {name} does not run' if short else f'no replica of job {name} runs'}: the job is {phase}{because}"
        )
    first = min(members, key=lambda one: (_rank(job, one.role), one.index))
    state = job_pb2.ReplicaState.Name(first.state).removeprefix("REPLICA_STATE_").lower()
    because = f": {first.reason}" if first.reason else ""
    raise NotThere(f"{first.role}-{first.index} of job {name} does not run: it is {state}{because}")


def port_of(job: job_pb2.Job, member: job_pb2.Replica, wanted: int) -> Port:
    """The port ``wanted`` of a replica; 0 is the first that it declares. Raises ``NotThere``.

    On a machine that replicas share each has one port of its own, on which it listens in place of that at which the others would look for
    it in a cluster.
    """
    if wanted > _LARGEST_PORT:
        raise NotThere(f"{wanted} is no port: ports are 1 to {_LARGEST_PORT}")
    declared = _declared(job, member)
    if not wanted and not declared:
        raise NotThere(f"{member.role}-{member.index} of job {job.name} declares no port: say which")
    number = wanted or declared[0].number
    name = next((port.name for port in declared if port.number == number), "")
    own = int(member.address.rpartition(":")[2] or 0)
    known = port_in_cluster(job_from_proto(job.spec), member.role, member.index)
    return Port(number, own if own and number == known else number, name)


def _declared(job: job_pb2.Job, member: job_pb2.Replica) -> list[job_pb2.Port]:
    for role in job.spec.roles:
        if role.name == member.role:
            template = role.overrides.get(member.index, role.template)
            return list(template.ports)
    return []


def _check(job: job_pb2.Job, short: str) -> None:
    known = [role.name for role in job.spec.roles]
    known += [f"{role.name}-{index}" for role in job.spec.roles for index in range(role.max)]
    if not job.HasField("spec") or short in known:
        return
    near = difflib.get_close_matches(short, known, n=_SUGGESTED)
    roles = ", ".join(f"{role.name} (0 to {role.max - 1})" for role in job.spec.roles)
    remedy = f"did you mean {' or '.join(near)}?" if near else f"its roles are {roles}"
    raise NoSuchMember(f"job {job.name} has no replica {short}: {remedy}")


def _matches(one: job_pb2.Replica, short: str) -> bool:
    return short in {"", one.role, f"{one.role}-{one.index}"}


def _rank(job: job_pb2.Job, role: str) -> tuple[int, int]:
    """Those that lead come first, then the workers, then the others in the order of the document."""
    order = [one.name for one in job.spec.roles]
    place = order.index(role) if role in order else len(order)
    lowered = role.lower()
    if lowered in _LEADERS:
        return (_LEADERS.index(lowered), place)
    return (len(_LEADERS) + (lowered != _WORKER), place)
