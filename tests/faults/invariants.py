"""The invariants of the whole system under faults, checked on evidence that Muster did not write.

The replicas' ledger says what ran and when, the broker's stream which events exist, and the kernel which processes, descriptors and
memory there are. `check` compares them with what clients were told. It is pure, and has tests of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec
from ledger import Run

from muster_local.programs import BROKER


class Invariant(StrEnum):
    """What must hold under every fault."""

    ACKNOWLEDGED = "nothing acknowledged is lost"
    ONCE = "no replica runs twice in an attempt"
    WHOLE = "no gang stays partially running"
    FRESH = "no status is older than 1 s"
    CAPACITY = "no node is overcommitted"
    UNDISTURBED = "no job is restarted or evicted without a cause"
    CLEAN = "nothing is left over"
    RESOURCES = "memory and descriptors return"
    STEADY = "no other process ends"
    RECOVERY = "new jobs end after the fault"
    FIGURES = "figures stay within their bounds"


class Violation(msgspec.Struct, frozen=True):
    """An invariant that does not hold, and what shows it."""

    invariant: Invariant
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.detail}"


class AcknowledgedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A submission that was acknowledged.

    `roles` has the least and the requested size of each role. `outcome` is the phase in which it must end. `cpu` is the
    milli-CPU of each replica. `may_restart`: its replicas fail on purpose.
    """

    job_id: str
    roles: Mapping[str, tuple[int, int]]
    outcome: str = "SUCCEEDED"
    cpu: int = 500
    may_restart: bool = False


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a job at the end, as a client sees it."""

    phase: str
    attempt: int = 1
    failures: int = 0
    evictions: int = 0
    reason: str = ""


class StatusSample(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one query while every instance of the status-tracker said before and after that it is ready.

    `revision` is that of the answer, `stored` the sequence of the job's last event that was stored at least
    `MAX_AGE_S` seconds before the query began, and `age_s` the time since the first event that the answer lacks was stored.
    `waited_s` is how long the broker and the services, one after the other, have waited for a CPU since then.
    """

    at: float
    job_id: str
    revision: int
    stored: int
    age_s: float
    waited_s: float = 0.0


class ProcessUse(msgspec.Struct, frozen=True):
    """Resident memory in MiB, and open descriptors, of one process."""

    rss: float
    descriptors: int


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """What remains after all jobs were deleted: descriptions for people, empty if all is well."""

    processes: Sequence[str] = ()
    folders: Sequence[str] = ()
    leases: Sequence[str] = ()
    consumers: Sequence[str] = ()
    records: Sequence[str] = ()


class Figure(msgspec.Struct, frozen=True):
    """Something that a fault measures itself, and the largest value that is in order."""

    name: str
    value: float
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {self.value:.1f}"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about one fault.

    `nodes` has milli-CPU. `before` and `after` are by process. `restarted` lists processes that ended although the fault
    did not concern them. `recovery_s` is the time from the fault's end until a job submitted then had succeeded, None for never.
    `hit` are jobs of which the fault disturbs the replicas by design: they must end, in any phase. `forgotten` are acknowledged jobs
    that the fault may lose by design.
    """

    runs: Sequence[Run] = ()
    acknowledged: Sequence[AcknowledgedJob] = ()
    forgotten: Sequence[AcknowledgedJob] = ()
    hit: frozenset[str] = frozenset()
    states: Mapping[str, JobState] = {}
    samples: Sequence[StatusSample] = ()
    nodes: Mapping[str, int] = {}
    before: Mapping[str, ProcessUse] = {}
    after: Mapping[str, ProcessUse] = {}
    leftovers: Leftovers = Leftovers()
    restarted: Sequence[str] = ()
    recovery_s: float | None = 0.0
    figures: Sequence[Figure] = ()


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is still in order. `partial_s`: how long a gang may run partially; the rest are growths of one process.

    The broker caches what it has stored last, and Go returns freed memory in minutes: the soak finds out whether it grows for ever.
    """

    partial_s: float = 10.0
    rss_mib: float = 30.0
    broker_rss_mib: float = 64.0
    descriptors: int = 8
    recovery_s: float = 60.0


MAX_AGE_S = 1.0
_MAX_WAITED_S = 2.0
"""A status that the machine may have delayed for longer than this is not judged."""
TERMINAL = frozenset({"SUCCEEDED", "FAILED", "CANCELLED", "REJECTED", "TIMED_OUT"})
_SHOWN = 5


def check(evidence: Evidence, limits: Limits = Limits()) -> list[Violation]:  # noqa: B008 - frozen
    """Return every violation, at most a few of each invariant."""
    found = {
        Invariant.ACKNOWLEDGED: _lost(evidence),
        Invariant.ONCE: _twice(evidence.runs),
        Invariant.WHOLE: _partial(evidence, limits.partial_s),
        Invariant.FRESH: _stale(evidence.samples),
        Invariant.CAPACITY: _overcommitted(evidence),
        Invariant.UNDISTURBED: _disturbed(evidence),
        Invariant.CLEAN: _left_over(evidence.leftovers),
        Invariant.RESOURCES: _grown(evidence, limits),
        Invariant.STEADY: (f"{name} was restarted" for name in evidence.restarted),
        Invariant.RECOVERY: _not_recovered(evidence.recovery_s, limits.recovery_s),
        Invariant.FIGURES: (
            f"{one}, at most {one.bound:g}" for one in evidence.figures if not one.value <= one.bound
        ),
    }
    return [
        Violation(invariant, detail)
        for invariant, details in found.items()
        for detail, _ in zip(details, range(_SHOWN), strict=False)
    ]


def _lost(evidence: Evidence) -> Iterator[str]:
    runs = _by_job(evidence.runs)
    for job in evidence.acknowledged:
        state = evidence.states.get(job.job_id)
        if job.job_id in evidence.hit:
            if state is None or state.phase not in TERMINAL:
                yield f"{job.job_id}, of which the fault disturbed replicas, never ended"
        elif state is None:
            yield f"{job.job_id} was acknowledged and does not exist"
        elif state.phase != job.outcome:
            yield f"{job.job_id} must be {job.outcome} and is {state.phase} ({state.reason})"
        elif job.outcome == "SUCCEEDED":
            missing = _members(job) - {
                (run.role, run.index)
                for run in runs[job.job_id]
                if run.attempt == state.attempt and run.succeeded
            }
            if missing:
                yield f"{job.job_id} is SUCCEEDED, but the ledger has no end of {_names(missing)}"


def _members(job: AcknowledgedJob) -> set[tuple[str, int]]:
    return {(role, index) for role, (least, _) in job.roles.items() for index in range(least)}


def _twice(runs: Sequence[Run]) -> Iterator[str]:
    """Yield runs that began although an earlier one of the same replica still ran, or had succeeded in the same attempt."""
    by_replica: defaultdict[tuple[str, str, int], list[Run]] = defaultdict(list)
    for run in runs:
        by_replica[run.job_id, run.role, run.index].append(run)
    for several in by_replica.values():
        several.sort(key=lambda run: run.started)
        for number, later in enumerate(several):
            for earlier in several[:number]:
                if earlier.runs_at(later.started):
                    yield f"{later.name} began while {earlier.name} ran"
                elif later.attempt == earlier.attempt and earlier.succeeded:
                    yield f"{later.name} began after {earlier.name} had succeeded"
                elif (later.attempt, later.restart) <= (earlier.attempt, earlier.restart):
                    yield f"{later.name} began after {earlier.name}"


def _partial(evidence: Evidence, partial_s: float) -> Iterator[str]:
    """Yield gangs of which some replicas ran for longer than that while others had not begun or had failed."""
    least = {
        job.job_id: _members(job)
        for job in evidence.acknowledged
        if not job.may_restart and job.job_id not in evidence.hit
    }
    attempts: defaultdict[tuple[str, int], list[Run]] = defaultdict(list)
    for run in evidence.runs:
        if run.job_id in least:
            attempts[run.job_id, run.attempt].append(run)
    for (job_id, attempt), runs in attempts.items():
        began = {(run.role, run.index): run.started for run in reversed(runs)}
        missing = least[job_id] - began.keys()
        # A resize may end replicas beyond the least size; a gang that is being stopped is in part until its last replica has ended.
        complete = min(
            (
                run.ended
                for run in runs
                if run.ended is not None and not run.succeeded and (run.role, run.index) in least[job_id]
            ),
            default=None,
        )
        whole = None if missing else max(began[member] for member in least[job_id])
        for run in runs:
            until = _END_OF_TIME if run.ended is None else run.ended
            alone = min(until, _END_OF_TIME if whole is None else whole) - run.started
            after = until - complete if complete is not None else 0.0
            if alone > partial_s:
                without = _names(missing) if missing else "others"
                yield f"{run.name} ran {_seconds(alone)} without {without}"
                break
            if after > partial_s:
                yield f"{run.name} ran {_seconds(after)} after another replica of attempt {attempt} had ended"
                break


_END_OF_TIME = float("inf")


def _stale(samples: Sequence[StatusSample]) -> Iterator[str]:
    for sample in sorted(samples, key=lambda one: -one.age_s):
        is_judged = sample.waited_s <= _MAX_WAITED_S
        if is_judged and sample.revision < sample.stored and sample.age_s > MAX_AGE_S + sample.waited_s:
            yield (
                f"{sample.job_id} was answered at revision {sample.revision}, "
                f"and event {sample.stored} was {sample.age_s:.1f} s old "
                f"(waited {sample.waited_s:.1f} s for a CPU)"
            )


def _overcommitted(evidence: Evidence) -> Iterator[str]:
    cpu = {job.job_id: job.cpu for job in (*evidence.acknowledged, *evidence.forgotten)}
    # At the same instant an end comes before a start.
    changes = sorted(
        (at, amount, run.node)
        for run in evidence.runs
        for at, amount in ((run.started, cpu.get(run.job_id, 0)), (run.surely_until, -cpu.get(run.job_id, 0)))
        if at is not None
    )
    used: defaultdict[str, int] = defaultdict(int)
    most: defaultdict[str, int] = defaultdict(int)
    for _, amount, node in changes:
        used[node] += amount
        most[node] = max(most[node], used[node])
    for node, amount in most.items():
        if node not in evidence.nodes:
            yield f"a replica ran on {node or 'no node'}, which does not exist"
        elif amount > evidence.nodes[node]:
            yield f"{node} has {evidence.nodes[node]} milli-CPU and ran replicas of {amount}"


def _disturbed(evidence: Evidence) -> Iterator[str]:
    for job in evidence.acknowledged:
        state = evidence.states.get(job.job_id)
        if state is None or job.may_restart or job.job_id in evidence.hit:
            continue
        if state.attempt > 1 or state.failures or state.evictions:
            yield (
                f"{job.job_id} had {state.attempt} attempts, {state.failures} failures, {state.evictions} evictions"
                f" ({state.reason})"
            )


def _left_over(leftovers: Leftovers) -> Iterator[str]:
    yield from (f"process {one}" for one in leftovers.processes)
    yield from (f"folder {one}" for one in leftovers.folders)
    yield from (f"lease {one}" for one in leftovers.leases)
    yield from (f"consumer {one}" for one in leftovers.consumers)
    yield from (f"record {one}" for one in leftovers.records)


def _grown(evidence: Evidence, limits: Limits) -> Iterator[str]:
    for name, before in evidence.before.items():
        after = evidence.after.get(name)
        if after is None:
            yield f"{name} does not run"
            continue
        if after.rss - before.rss > (limits.broker_rss_mib if name == BROKER else limits.rss_mib):
            yield f"{name} had {before.rss:.0f} MiB before and has {after.rss:.0f} MiB"
        if after.descriptors - before.descriptors > limits.descriptors:
            yield f"{name} had {before.descriptors} descriptors before and has {after.descriptors}"


def _not_recovered(recovery_s: float | None, limit_s: float) -> Iterator[str]:
    if recovery_s is None:
        yield "no job that was submitted after the fault succeeded"
    elif recovery_s > limit_s:
        yield f"a job that was submitted after the fault succeeded after {recovery_s:.1f} s"


def _by_job(runs: Iterable[Run]) -> defaultdict[str, list[Run]]:
    found: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[run.job_id].append(run)
    return found


def _names(members: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{role}-{index}" for role, index in sorted(members))


def _seconds(seconds: float) -> str:
    return "for ever" if seconds == _END_OF_TIME else f"for {seconds:.1f} s"
