"""Runs one fault: jobs before, during and after it, the evidence, and the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from contextlib import suppress
from os import cpu_count
from pathlib import Path

import msgspec
from cpu_delay import CpuDelay
from fault_kinds import FaultKind, NotInjectedError
from invariants import Evidence, Invariant, Leftovers, Limits, ProcessUse, Violation, check
from observed_system import NODES, ObservedSystem, running_beside
from workload import LONG, SHORT, StatusSampler, Workload

from muster import MusterError

_WARM_UP_S = 60.0
_BEFORE_S = 1.5
_AFTER_S = 1.5
_MOMENT_S = 20.0
_END_S = 90.0
_SETTLE_S = 150.0
"""The broker's runtime returns memory after its periodic collection, every two minutes."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of the matrix.

    `moment` is empty for some time under load, or the name of the event at which it happens. `in_ci`: it belongs to the part that
    every change is tested with. `limits` are those of the checker.
    """

    name: str
    kind: FaultKind
    moment: str = ""
    instances: int = 1
    in_ci: bool = False
    limits: Limits = Limits()

    @property
    def id(self) -> str:
        """Name, moment and number of instances: the id in tests, and on the command line."""
        words = [self.name, *([f"at {self.moment}"] if self.moment else ()), f"x{self.instances}"]
        return " ".join(words).replace(" ", "-").replace(":", "").replace(",", "").replace("'", "")


class FaultResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run found, when and on how many cores. `recovery_s` is the time from the fault's end to the end of a job submitted then."""

    id: str
    fault: str
    moment: str
    instances: int
    jobs: int
    recovery_s: float | None
    violations: tuple[str, ...]
    figures: tuple[str, ...] = ()
    seconds: float = 0.0
    date: str = ""
    cores: int = 0

    @classmethod
    def of(
        cls,
        fault: Fault,
        *,
        violations: tuple[str, ...],
        seconds: float,
        jobs: int = 0,
        recovery_s: float | None = None,
        figures: tuple[str, ...] = (),
    ) -> FaultResult:
        """Return a result of today on this machine."""
        return cls(
            id=fault.id,
            fault=fault.name,
            moment=fault.moment,
            instances=fault.instances,
            jobs=jobs,
            recovery_s=recovery_s,
            violations=violations,
            figures=figures,
            seconds=seconds,
            date=time.strftime("%Y-%m-%d", time.gmtime()),
            cores=cpu_count() or 0,
        )

    @property
    def outcome(self) -> str:
        """The result in one word."""
        return "violated" if self.violations else "held"

    def __str__(self) -> str:
        recovery = "never" if self.recovery_s is None else f"{self.recovery_s:.1f} s"
        first = f"{self.id}: {self.jobs} jobs, recovery {recovery}, {self.outcome}"
        return "\n  ".join([first, *self.violations])


async def run_fault(fault: Fault, folder: Path) -> FaultResult:
    """Run a fault on a system of its own, and check the invariants."""
    async with ObservedSystem.running(folder, fault.kind.equipment, instances=fault.instances) as system:
        return await run_fault_on(system, fault)


async def run_fault_on(system: ObservedSystem, fault: Fault) -> FaultResult:
    """Run a fault on a system without jobs that has what the fault needs, and check the invariants."""
    began = time.monotonic()
    async with CpuDelay.watching(lambda: system.pids().values()) as cpu_delay:
        evidence = await _gather_evidence(fault, system, cpu_delay)
    limits = msgspec.structs.replace(fault.limits, partial_s=fault.limits.partial_s + fault.kind.partial_s)
    violations = [one for one in check(evidence, limits) if one.invariant not in fault.kind.excused]
    if not evidence.samples and Invariant.FRESH not in fault.kind.excused:
        violations.append(Violation(Invariant.FRESH, "no status was looked at"))
    return FaultResult.of(
        fault,
        jobs=len(evidence.acknowledged),
        recovery_s=evidence.recovery_s,
        violations=tuple(str(one) for one in violations),
        figures=tuple(str(one) for one in evidence.figures),
        seconds=time.monotonic() - began,
    )


async def _gather_evidence(fault: Fault, system: ObservedSystem, cpu_delay: CpuDelay) -> Evidence:
    workload, sampler = Workload(system), StatusSampler(system, cpu_delay)
    warm = await workload.submit(LONG[0])
    for shape in LONG[1:]:
        await workload.submit(shape)
    await _wait_until_running(system, warm)
    before, pids = system.use(), system.pids()
    leases, consumers = await system.leases(), await system.consumers(idle=True)
    async with running_beside(workload.keep_submitting()), running_beside(sampler.keep_sampling()):
        await asyncio.sleep(_BEFORE_S)
        if fault.moment:
            await _wait_for_moment(fault.moment, system, workload)
        sampler.pause()
        await fault.kind.happen(system, workload)
        healed = time.monotonic()
        sampler.resume(after_s=fault.kind.notice_s)
        recovery_s = await _recovery(workload, healed, fault.limits.recovery_s)
        await asyncio.sleep(_AFTER_S)
    async with running_beside(sampler.keep_sampling()):
        await _try(workload.cancel_long_jobs())
        states = await workload.states(within_s=_END_S)
        await _try(workload.delete_all(history=not fault.kind.keeps_history))
        after, leftovers = await _settled(
            fault, system, workload, before=before, leases=leases, consumers=consumers
        )
    return Evidence(
        runs=system.ledger.runs(),
        acknowledged=workload.acknowledged,
        forgotten=workload.forgotten,
        hit=frozenset(workload.hit),
        states=states,
        samples=sampler.samples,
        nodes=NODES,
        before=before,
        after=after,
        leftovers=leftovers,
        restarted=_restarted(fault.kind, pids, system.pids()),
        recovery_s=recovery_s,
        figures=workload.figures,
    )


async def _wait_for_moment(moment: str, system: ObservedSystem, workload: Workload) -> None:
    """Wait for the next event of a kind. The load alone has no commands, and no proposals, because the pool is never idle."""
    causes = {"CommandRequested": workload.keep_cancelling, "ScaleProposed": workload.keep_idle}
    try:
        async with running_beside(causes.get(moment, asyncio.Event().wait)()), asyncio.timeout(_MOMENT_S):
            await system.events.next(moment)
    except TimeoutError:
        raise NotInjectedError(f"no {moment} within {_MOMENT_S:g} s") from None


async def _recovery(workload: Workload, healed: float, limit_s: float) -> float | None:
    """Return the time from the fault's end until a job submitted then has succeeded, None if it did not."""
    try:
        job_id = await workload.submit(SHORT[0], within_s=limit_s)
        if (await workload.ended(job_id, within_s=limit_s)).phase != SHORT[0].outcome:
            return None
    except (TimeoutError, MusterError):
        return None
    return time.monotonic() - healed


async def _settled(
    fault: Fault,
    system: ObservedSystem,
    workload: Workload,
    *,
    before: dict[str, ProcessUse],
    leases: set[str],
    consumers: dict[str, int],
) -> tuple[dict[str, ProcessUse], Leftovers]:
    """Wait until nothing is left and the processes are as before, at most for a while; return the last look."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        if fault.kind.leaves_orphans:
            await _try(workload.remove_orphans())
        after = system.use()
        leftovers = await system.leftovers(
            leases=leases, consumers=consumers, records=not fault.kind.keeps_history
        )
        evidence = Evidence(before=before, after=after, leftovers=leftovers)
        found = {one.invariant for one in check(evidence, fault.limits)} & {
            Invariant.CLEAN,
            Invariant.RESOURCES,
        }
        if not found - fault.kind.excused or time.monotonic() > deadline:
            return after, leftovers
        await asyncio.sleep(0.5)


async def _wait_until_running(system: ObservedSystem, job_id: str) -> None:
    async with asyncio.timeout(_WARM_UP_S):
        while not any(run.job_id == job_id for run in system.ledger.runs()):
            await asyncio.sleep(0.05)


def _restarted(kind: FaultKind, before: dict[str, int], after: dict[str, int]) -> list[str]:
    return [
        name
        for name, pid in before.items()
        if after.get(name) != pid
        and not any(name == struck or name.startswith(f"{struck}-") for struck in kind.strikes)
    ]


async def _try(work: Coroutine[None, None, None]) -> None:
    """Do the work if the system lets it; what was not done shows in the evidence."""
    with suppress(TimeoutError, MusterError):
        await work
