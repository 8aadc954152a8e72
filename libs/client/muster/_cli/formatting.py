"""Text for states, times, amounts, reasons and outcomes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from google.protobuf import timestamp_pb2

from muster._cli import exit_codes
from muster_core.models import TERMINAL_PHASES, Phase
from muster_core.quantities import counted, format_amount, format_demand
from muster_rpc.convert import micros_from_proto, phase_from_proto
from muster_rpc.v1 import job_pb2

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_DAYS_WITH_HOURS = 10
_GIB = 2**30
_MIB = 2**20

_STYLES = {
    Phase.RUNNING: "green",
    Phase.SUCCEEDED: "green",
    Phase.FAILED: "red",
    Phase.REJECTED: "red",
    Phase.TIMED_OUT: "red",
    Phase.CANCELLED: "magenta",
    Phase.RESTARTING: "yellow",
    Phase.EVICTED: "yellow",
    Phase.QUEUED: "yellow",
}


_WAITING = frozenset({Phase.QUEUED, Phase.EVICTED, Phase.RESTARTING})


def phase_of(job: job_pb2.Job) -> str:
    """Return the name of the job's phase."""
    phase = phase_from_proto(job.status.phase)
    return phase.value if phase else f"phase {job.status.phase}"


def phase_style(job: job_pb2.Job) -> str:
    """Return the colour of the job's phase."""
    phase = phase_from_proto(job.status.phase)
    return _STYLES.get(phase, "") if phase else ""


def is_waiting(job: job_pb2.Job) -> bool:
    """Return whether the job waits to be placed."""
    return phase_from_proto(job.status.phase) in _WAITING


def has_ended(job: job_pb2.Job) -> bool:
    """Return whether the job's phase is terminal."""
    return phase_from_proto(job.status.phase) in TERMINAL_PHASES


def members(job: job_pb2.Job) -> list[job_pb2.Replica]:
    """Return the replicas of the current membership."""
    return [r for r in job.status.replicas if r.attempt == job.status.attempt and not r.terminating]


def running_of_all(job: job_pb2.Job) -> str:
    """Return running of all replicas: ``2/3``; before the placement of the requested ones; after the end, the successful
    ones.

    Of a succeeded job only replicas count that ended before it did: the others were stopped.
    """
    phase = phase_from_proto(job.status.phase)
    if phase in TERMINAL_PHASES:
        ended = [replica for replica in job.status.replicas if replica.attempt == job.status.attempt]
        if phase is Phase.SUCCEEDED:
            ended = [replica for replica in ended if replica.HasField("ended_at") and not replica.terminating]
        well = sum(1 for replica in ended if replica.HasField("exit_code") and not replica.exit_code)
        return f"{well}/{len(ended)}" if ended else "-"
    present = members(job)
    running = sum(1 for replica in present if replica.state == job_pb2.REPLICA_STATE_RUNNING)
    asked = sum(role.replicas for role in job.spec.roles)
    total = len(present) or asked
    return f"{running}/{total}" if total else "-"


def short_name(job: job_pb2.Job, replica: str) -> str:
    """Return ``worker-0`` of ``demo-worker-0``."""
    return replica.removeprefix(f"{job.name}-".lower())


def state_of(replica: job_pb2.Replica) -> str:
    """Return the name of a replica's state."""
    name = job_pb2.ReplicaState.Name(replica.state).removeprefix("REPLICA_STATE_").lower()
    return f"{name}, terminating" if replica.terminating and not replica.HasField("ended_at") else name


def ending_of(replica: job_pb2.Replica) -> str:
    """Return how a replica ended: exit code or signal, and the runtime's reason."""
    parts: list[str] = []
    if replica.HasField("signal"):
        parts.append(f"signal {replica.signal}")
    elif replica.HasField("exit_code"):
        parts.append(f"exit {replica.exit_code}")
    if replica.reason:
        parts.append(replica.reason)
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration in its two largest units: ``850ms``, ``4.2s``, ``3m12s``, ``2h05m``, ``3d04h``."""
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    return age(seconds)


def age(seconds: float) -> str:
    """Return a duration in whole seconds."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02d}s"
    if whole < _DAY:
        return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02d}m"
    days = whole // _DAY
    return f"{days}d{whole % _DAY // _HOUR:02d}h" if days < _DAYS_WITH_HOURS else f"{days}d"


def instant(timestamp: timestamp_pb2.Timestamp) -> float:
    """Return seconds since the epoch; 0 for an absent timestamp."""
    return micros_from_proto(timestamp) / 1e6


def since(timestamp: timestamp_pb2.Timestamp, now: float) -> str:
    """Return the age of a timestamp; ``-`` if it is absent."""
    at = instant(timestamp)
    return age(now - at) if at else "-"


def clock(timestamp: timestamp_pb2.Timestamp) -> str:
    """Return the local time of day."""
    return clock_of(instant(timestamp))


def clock_of(seconds: float) -> str:
    """Return the local time of day of seconds since the epoch."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%H:%M:%S")


def dated_clock(timestamp: timestamp_pb2.Timestamp) -> str:
    """Return the local weekday or date and time, for what may be older than a day."""
    return datetime.fromtimestamp(instant(timestamp)).astimezone().strftime("%m-%d %H:%M:%S")


def moment(timestamp: timestamp_pb2.Timestamp) -> str:
    """Return the local date and time."""
    return datetime.fromtimestamp(instant(timestamp)).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def cpus(milli: int) -> str:
    """Return CPUs with at most one decimal."""
    return f"{milli / 1000:.1f}".removesuffix(".0")


def gibibytes(amount: int) -> str:
    """Return memory in short form."""
    return f"{amount / _GIB:.1f}Gi".replace(".0Gi", "Gi") if amount >= _GIB else f"{amount / _MIB:.0f}Mi"


def gpus(milli: int) -> str:
    """Return GPUs, shares as decimals."""
    return format_amount("gpu", milli)


def gpu_list(indices: Iterable[int]) -> str:
    """Return GPU indices as ``0,1``, or an empty text."""
    return ",".join(str(index) for index in indices)


def percent(amount: int, whole: int) -> str:
    """Return a ratio in per cent with one decimal, rounded down, so that only full is 100 %."""
    tenths = amount * 1000 // whole
    return f"{tenths // 10}.{tenths % 10} %"


_SHOWN_ELSEWHERE = ("feasible_when_empty", "filtered.")
"""Numbers that the sentence expresses in words, or that have a table of their own."""

_NEEDED, _PLACEABLE = "needed_replicas", "placeable_replicas"


def numbers_not_in(numbers: Mapping[str, int], sentence: str) -> list[str]:
    """Return what ``numbers`` adds to ``sentence``; amounts of resources are in milli-units or bytes, keyed ``kind.resource``."""
    return [words for amount, words in _in_words(numbers) if not _says(sentence, amount)]


def _in_words(numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield each number as the sentence would write it, with what it counts."""
    rest = {name: value for name, value in sorted(numbers.items()) if not name.startswith(_SHOWN_ELSEWHERE)}
    if rest.keys() >= {_NEEDED, _PLACEABLE}:
        placeable, needed = rest.pop(_PLACEABLE), counted(rest.pop(_NEEDED), "replica")
        yield (f"{placeable} of the {needed}", f"{placeable} of the {needed} that start together would fit")
    for name, value in rest.items():
        kind, _, resource = name.partition(".")
        if resource:
            yield format_amount(resource, value), f"{format_demand(resource, value)} {kind}"
        elif name == "nodes":
            yield counted(value, "node"), f"{counted(value, 'node')} in the pool"
        else:
            yield str(value), f"{name.replace('_', ' ')} {value}"


def _says(sentence: str, amount: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(amount)}(?!\w|\.\d)", sentence) is not None


_VERBS = {
    Phase.SUCCEEDED: "succeeded",
    Phase.FAILED: "failed",
    Phase.REJECTED: "was rejected",
    Phase.CANCELLED: "was cancelled",
    Phase.TIMED_OUT: "timed out",
}


def outcome_line(job: job_pb2.Job) -> str:
    """Return the outcome of a job, or its state, as one sentence."""
    phase = phase_from_proto(job.status.phase)
    name = job.name or job.job_id
    verb = _VERBS.get(phase, f"is {phase_of(job)}") if phase else "is in an unknown phase"
    begun, ended = instant(job.status.submitted_at), instant(job.status.finished_at)
    took = f" after {duration(ended - begun)}" if begun and ended else ""
    reason = job.status.reason.message or job.status.reason.code
    suffix = f": {reason}" if reason and phase is not Phase.SUCCEEDED else ""
    return f"{name} {verb}{took}{suffix}"


def outcome_style(job: job_pb2.Job) -> str:
    """Return the colour of that sentence."""
    return phase_style(job)


def exit_code(job: job_pb2.Job) -> int:
    """Return 0 for a succeeded job, 3 for a rejected document, else 1."""
    match phase_from_proto(job.status.phase):
        case Phase.SUCCEEDED:
            return exit_codes.OK
        case Phase.REJECTED:
            return exit_codes.REFUSED
        case _:
            return exit_codes.JOB_FAILED
