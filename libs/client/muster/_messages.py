"""References of jobs and replicas as users write them, and the messages of bidirectional calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from muster.errors import ConnectionLost, MusterError, NotFound, Rejected
from muster_rpc.v1 import job_pb2, job_service_pb2, job_service_pb2 as pb

_JOB_ID = re.compile(r"j-[a-z2-7]{16}")
_REPLICA = re.compile(r"(.+)-([0-9]{1,6})")
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def job_ref(reference: str, namespace: str) -> job_service_pb2.JobRef:
    """Return the reference as the API takes it: an id if it looks exactly like one, else a name.

    Raises ``NotFound`` for a text that can be neither.
    """
    if _JOB_ID.fullmatch(reference):
        return job_service_pb2.JobRef(job_id=reference)
    if not _NAME.fullmatch(reference):
        raise NotFound(
            f"{reference!r} is neither a job id (j- and 16 characters) nor a name (a-z, 0-9 and -, at most 63)"
        )
    return job_service_pb2.JobRef(name=reference, namespace=namespace)


def replica_selector(label: str) -> job_pb2.ReplicaSelector:
    """``worker-0`` as one replica, ``worker`` as a role."""
    found = _REPLICA.fullmatch(label)
    if found is None:
        return job_pb2.ReplicaSelector(role=label)
    return job_pb2.ReplicaSelector(role=found[1], index=int(found[2]))


def replica_ref(label: str) -> job_pb2.ReplicaRef | None:
    """``worker-0`` as the API takes it; None for no label. Raises ``Rejected`` for any other text."""
    if not label:
        return None
    found = _REPLICA.fullmatch(label)
    if found is None:
        raise Rejected(f"{label!r} is not a replica; give ROLE-INDEX, such as worker-3")
    return job_pb2.ReplicaRef(role=found[1], index=int(found[2]))


def replica_label(ref: job_pb2.ReplicaRef) -> str:
    """``worker-0``."""
    return f"{ref.role}-{ref.index}"


_PIECE_BYTES = 32 * 1024


class Size(NamedTuple):
    """The size of a terminal, in characters."""

    rows: int
    columns: int


class Output(NamedTuple):
    """Bytes that a command wrote, to stderr or else to stdout (or its terminal)."""

    data: bytes
    is_error: bool


def exec_start(
    job: pb.JobRef, command: Sequence[str], *, replica: str, stdin: bool, terminal: Size | None
) -> pb.ExecJobRequest:
    """Return the start message: the command and its replica."""
    size = pb.TerminalSize(rows=terminal.rows, columns=terminal.columns) if terminal else None
    what = pb.ExecCommand(args=command, stdin=stdin, terminal=size)
    return pb.ExecJobRequest(start=pb.ExecStart(job=job, replica=_selector(job, replica), command=what))


def exec_inputs(data: bytes) -> Iterator[pb.ExecJobRequest]:
    """Return input in chunks of moderate size."""
    for piece in _pieces(data):
        yield pb.ExecJobRequest(input=pb.ExecInput(stdin=piece))


EXEC_END = pb.ExecJobRequest(input=pb.ExecInput(end=True))
"""The end of the input."""


def exec_size(size: Size) -> pb.ExecJobRequest:
    """Return a terminal size message."""
    return pb.ExecJobRequest(input=pb.ExecInput(size=pb.TerminalSize(rows=size.rows, columns=size.columns)))


def output_of(answer: pb.ExecJobResponse) -> Output | None:
    """Return the output in an answer, or None."""
    output = answer.output
    if output.stderr:
        return Output(output.stderr, True)
    return Output(output.stdout, False) if output.stdout else None


def forward_start(job: pb.JobRef, port: int, *, replica: str, probe: bool) -> pb.ForwardPortRequest:
    """Return the start message of a connection."""
    start = pb.ForwardPortStart(job=job, replica=_selector(job, replica), port=port, probe=probe)
    return pb.ForwardPortRequest(start=start)


def forward_data(data: bytes) -> Iterator[pb.ForwardPortRequest]:
    """Return data in chunks."""
    for piece in _pieces(data):
        yield pb.ForwardPortRequest(data=piece)


FORWARD_END = pb.ForwardPortRequest(end=True)
"""The end of the data."""


def _selector(job: pb.JobRef, replica: str) -> job_pb2.ReplicaSelector | None:
    return replica_selector(replica.removeprefix(f"{job.name}-")) if replica else None


def _pieces(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), _PIECE_BYTES):
        yield data[at : at + _PIECE_BYTES]


def failure_of(failed: pb.ForwardPortFailed) -> MusterError:
    """Return the exception for a connection that ended early."""
    kind = ConnectionLost if failed.retryable else Rejected
    return kind(failed.message)
