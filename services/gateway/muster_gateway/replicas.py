"""Commands in replicas, connections to their ports, and restarts: which replica a request means, and the stream to it.

The gateway looks up the job and its replica, so that a client needs neither credentials of the cluster nor the address of the replica. It
buffers nothing: a message is read from one side when the other side has taken the last one.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import grpc
import msgspec
from grpc import aio

from muster_core.events import Command, CommandRequested
from muster_core.frameworks import port_of as cluster_port_of
from muster_core.lifecycle import ACTIVE_PHASES
from muster_core.models import TERMINAL_PHASES
from muster_gateway.calls import abort_as, caller_of
from muster_rpc.calls import ServerContext
from muster_rpc.convert import job_from_proto, phase_from_proto
from muster_rpc.internal.v1 import queries_pb2, queries_pb2_grpc
from muster_rpc.v1 import job_pb2, job_service_pb2 as pb
from muster_service.grpc_client import Messages, until_left
from muster_service.logs import fields

log = logging.getLogger(__name__)

JobLookup = Callable[[pb.JobRef, ServerContext], Awaitable[job_pb2.Job]]
"""Gets the job of a reference, or aborts the call."""

_LEADERS = ("chief", "master", "launcher")
_WORKER = "worker"
_SUGGESTIONS = 3
_LARGEST_PORT = 65535
_STARTED = (job_pb2.REPLICA_STATE_LAUNCHED, job_pb2.REPLICA_STATE_RUNNING)


class UnknownReplica(LookupError):
    """The job has no such replica; the message names those it has."""


class NotAvailable(ValueError):
    """The replica does not run, or its port is not known; the message says why."""


class ReplicaPort(msgspec.Struct, frozen=True):
    """A port of a replica: the ``number`` in the request, the ``actual`` port where the replica runs, the ``name`` if it is declared."""

    number: int
    actual: int
    name: str = ""


class ReplicaStreams:
    """Runs commands in replicas and forwards ports."""

    def __init__(self, *, job_of: JobLookup, replicas: queries_pb2_grpc.ReplicaServiceAsyncStub) -> None:
        self._job_of = job_of
        self._replicas = replicas

    async def execute(self, requests: AsyncIterator[pb.ExecJobRequest], context: ServerContext) -> None:
        """Run a command in a replica; forward its input and output."""
        requests = Messages(requests)
        first = await anext(requests, None)
        if first is None or not first.HasField("start") or not first.start.command.args:
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "start.command.args: the first message gives the command"
            )
            return
        job = await self._job_of(first.start.job, context)
        replica = await _selected(job, _selector(first.start), context)
        program = first.start.command.args[0]
        log.info("command in a replica", extra=_fields(job, replica, context, command=program))
        start = queries_pb2.ExecReplicaStart(
            job_id=job.job_id, replica=ref_of(replica), command=first.start.command
        )

        async def inputs() -> AsyncIterator[queries_pb2.ExecReplicaRequest]:
            yield queries_pb2.ExecReplicaRequest(start=start)
            async for request in requests:
                yield queries_pb2.ExecReplicaRequest(input=request.input)

        try:
            async with until_left(self._replicas.ExecReplica(inputs())) as answers:
                async for answer in answers:
                    match answer.WhichOneof("part"):
                        case "started":
                            await context.write(pb.ExecJobResponse(started=answer.started))
                        case "output":
                            await context.write(pb.ExecJobResponse(output=answer.output))
                        case "ended":
                            await context.write(pb.ExecJobResponse(ended=answer.ended))
                        case None:
                            pass
        except aio.AioRpcError as error:
            await abort_as(error, context, "pod-launcher")

    async def forward(self, requests: AsyncIterator[pb.ForwardPortRequest], context: ServerContext) -> None:
        """Connect the client to a port of a replica."""
        requests = Messages(requests)
        first = await anext(requests, None)
        if first is None or not first.HasField("start"):
            await context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, "start: the first message gives the job and the port"
            )
            return
        job = await self._job_of(first.start.job, context)
        replica = await _selected(job, _selector(first.start), context)
        try:
            port = port_of(job, replica, first.start.port)
        except NotAvailable as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        opened = pb.ForwardPortOpened(replica=ref_of(replica), port=port.number, name=port.name)
        if first.start.probe:
            await context.write(pb.ForwardPortResponse(opened=opened))
            return
        log.info("connection to a replica", extra=_fields(job, replica, context, port=port.number))
        start = queries_pb2.ConnectReplicaStart(job_id=job.job_id, replica=ref_of(replica), port=port.actual)

        async def inputs() -> AsyncIterator[queries_pb2.ConnectReplicaRequest]:
            yield queries_pb2.ConnectReplicaRequest(start=start)
            async for request in requests:
                if request.end:
                    yield queries_pb2.ConnectReplicaRequest(end=True)
                else:
                    yield queries_pb2.ConnectReplicaRequest(data=request.data)

        try:
            async with until_left(self._replicas.ConnectReplica(inputs())) as answers:
                async for answer in answers:
                    match answer.WhichOneof("part"):
                        case "opened":
                            await context.write(pb.ForwardPortResponse(opened=opened))
                        case "data":
                            await context.write(pb.ForwardPortResponse(data=answer.data))
                        case "end":
                            await context.write(pb.ForwardPortResponse(end=True))
                        case "failed":
                            await context.write(pb.ForwardPortResponse(failed=answer.failed))
                            return
                        case None:
                            pass
        except aio.AioRpcError as error:
            await abort_as(error, context, "pod-launcher")


def select_replica(job: job_pb2.Job, selector: job_pb2.ReplicaSelector | None) -> job_pb2.Replica:
    """Return the running replica that a selector selects; without one, the leader (chief, master, launcher), else the first worker.

    Raises:
        UnknownReplica: The job has no such role or index.
        NotAvailable: The replica does not run.
    """
    name = job.name or job.job_id
    phase = phase_from_proto(job.status.phase)
    if phase in TERMINAL_PHASES:
        raise NotAvailable(f"job {name} has ended: {phase}")
    wanted = label_of(selector) if selector else ""
    if selector:
        _check(job, wanted)
    gang = [one for one in _gang(job) if selector is None or wanted in (one.role, f"{one.role}-{one.index}")]
    running = [one for one in gang if one.state == job_pb2.REPLICA_STATE_RUNNING]
    if running:
        return min(running, key=lambda one: (_rank(job, one.role), one.index, -one.restart))
    if not gang:
        because = f": {job.status.reason.message}" if job.status.reason.message else ""
        subject = f"{wanted} of job {name} does not run" if wanted else f"no replica of job {name} runs"
        raise NotAvailable(f"{subject}: the job is {phase}{because}")
    first = min(gang, key=lambda one: (_rank(job, one.role), one.index))
    because = f": {first.reason}" if first.reason else ""
    raise NotAvailable(
        f"{first.role}-{first.index} of job {name} does not run: it is {_state_of(first)}{because}"
    )


def port_of(job: job_pb2.Job, replica: job_pb2.Replica, wanted: int) -> ReplicaPort:
    """Return the port ``wanted`` of a replica; 0 is the first that it declares. Raises ``NotAvailable``.

    Replicas that share a machine each have a port of their own, which replaces the port that they have in a cluster.
    """
    if wanted > _LARGEST_PORT:
        raise NotAvailable(f"port {wanted} is out of range: ports are 1 to {_LARGEST_PORT}")
    declared = _declared(job, replica)
    if not wanted and not declared:
        raise NotAvailable(f"{replica.role}-{replica.index} of job {job.name} declares no port: give one")
    number = wanted or declared[0].number
    name = next((port.name for port in declared if port.number == number), "")
    own = int(replica.address.rpartition(":")[2] or 0)
    known = cluster_port_of(job_from_proto(job.spec), replica.role, replica.index)
    return ReplicaPort(number, own if own and number == known else number, name)


def restart_command(
    job: job_pb2.Job, replica: job_pb2.ReplicaRef | None, request_id: str
) -> CommandRequested:
    """Return the command that restarts ``job``, or one replica of it. Raises ``NotAvailable``."""
    phase = phase_from_proto(job.status.phase)
    if phase not in ACTIVE_PHASES:
        raise NotAvailable(f"job {job.name or job.job_id} has nothing to restart: it is {phase}")
    command = CommandRequested(command=Command.RESTART, request_id=request_id)
    if replica is None:
        return command
    label = f"{replica.role}-{replica.index}"
    found = next((one for one in _gang(job) if f"{one.role}-{one.index}" == label), None)
    if found is None:
        raise NotAvailable(f"job {job.name} has no replica {label} now")
    if found.state not in _STARTED:
        raise NotAvailable(f"replica {label} of job {job.name} does not run: it is {_state_of(found)}")
    return msgspec.structs.replace(command, role=found.role, target=found.index)


def label_of(selector: job_pb2.ReplicaSelector) -> str:
    """Return ``worker-3``, or ``worker`` for a whole role."""
    return f"{selector.role}-{selector.index}" if selector.HasField("index") else selector.role


def ref_of(replica: job_pb2.Replica) -> job_pb2.ReplicaRef:
    """Return the reference to a replica."""
    return job_pb2.ReplicaRef(
        role=replica.role, index=replica.index, attempt=replica.attempt, restart=replica.restart
    )


def _selector(start: pb.ExecStart | pb.ForwardPortStart) -> job_pb2.ReplicaSelector | None:
    return start.replica if start.HasField("replica") else None


async def _selected(
    job: job_pb2.Job, selector: job_pb2.ReplicaSelector | None, context: ServerContext
) -> job_pb2.Replica:
    try:
        return select_replica(job, selector)
    except UnknownReplica as error:
        await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
    except NotAvailable as error:
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
    raise AssertionError("abort returned")


def _gang(job: job_pb2.Job) -> list[job_pb2.Replica]:
    return [one for one in job.status.replicas if one.attempt == job.status.attempt and not one.terminating]


def _declared(job: job_pb2.Job, replica: job_pb2.Replica) -> list[job_pb2.Port]:
    for role in job.spec.roles:
        if role.name == replica.role:
            template = role.overrides.get(replica.index, role.template)
            return list(template.ports)
    return []


def _check(job: job_pb2.Job, wanted: str) -> None:
    known = [role.name for role in job.spec.roles]
    known += [f"{role.name}-{index}" for role in job.spec.roles for index in range(role.max)]
    if not job.HasField("spec") or wanted in known:
        return
    near = difflib.get_close_matches(wanted, known, n=_SUGGESTIONS)
    roles = ", ".join(f"{role.name} (0 to {role.max - 1})" for role in job.spec.roles)
    fix = f"did you mean {' or '.join(near)}?" if near else f"its roles are {roles}"
    raise UnknownReplica(f"job {job.name} has no replica {wanted}: {fix}")


def _rank(job: job_pb2.Job, role: str) -> tuple[int, int]:
    """Leaders first, then workers, then the other roles in the order of the document."""
    order = [one.name for one in job.spec.roles]
    place = order.index(role) if role in order else len(order)
    lowered = role.lower()
    if lowered in _LEADERS:
        return (_LEADERS.index(lowered), place)
    return (len(_LEADERS) + (lowered != _WORKER), place)


def _state_of(replica: job_pb2.Replica) -> str:
    return job_pb2.ReplicaState.Name(replica.state).removeprefix("REPLICA_STATE_").lower()


def _fields(
    job: job_pb2.Job, replica: job_pb2.Replica, context: ServerContext, **more: object
) -> dict[str, object]:
    label = f"{replica.role}-{replica.index}"
    return fields(job_id=job.job_id, job=job.name, replica=label, by=caller_of(context), **more)
