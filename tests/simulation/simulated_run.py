"""Run the whole system in simulation, one run for each seed: ``python tests/simulation/simulated_run.py SEED [--count N]``.

A run with the same seed and kinds of faults is always the same, so a violation can be looked at with ``-v``. Each run has an
operating system process of its own, with the same state at its start.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from typing import Any

import msgspec
from defects import DEFECTS
from grpc import StatusCode, aio
from memory_grpc import as_channel
from simulated_invariants import STALE_S, PartialGangs, StatusProbe, Truth, Violation
from virtual_loop import Stuck
from virtual_system import Instance, VirtualSystem
from workload import WARM_UP_S, Action, Fault, Plan, PlannedFault, PlannedJob, make_plan

from muster_core.models import TERMINAL_PHASES
from muster_events.catalogue import GATEWAY, JOBS_BUCKET, STATUS_TRACKER
from muster_rpc.convert import job_to_proto
from muster_rpc.v1 import (
    cluster_service_pb2,
    cluster_service_pb2_grpc,
    job_service_pb2 as pb,
    job_service_pb2_grpc,
)

_PROBE_S = 2.5
_CLIENT_S = 90.0
_TO_END_S = 150.0
_TO_CLEAN_S = 60.0
_QUIET_S = 8.0
_CPU_LIMIT_S = 120
_CLOCK_STEP_NS = 600 * 1_000_000_000
_FAULTS_OF_ALL = frozenset({Fault.BROKER, Fault.SLOW})
_RETRIED = frozenset({StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED})

Defect = Callable[[], None]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run; ``trace`` is a hash of everything that was stored and when."""

    seed: int
    violations: tuple[Violation, ...]
    trace: str
    simulated_s: float
    real_s: float
    callbacks: int
    jobs: int
    faults: tuple[str, ...]


class SimulatedRun:
    """One run."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.violations: list[Violation] = []
        self.system = VirtualSystem(seed=seed, nodes=plan.nodes, instances=plan.instances, report=self.report)
        self.truth = Truth(self.system, self.report)
        self._plan = plan
        self._probe = StatusProbe(self.system, self.truth, self.report)
        self._gangs = PartialGangs(self.system.machine.ledger, self.truth, self.report)
        self._acknowledged: dict[str, PlannedJob] = {}
        self._disturbed_until: dict[str, float] = {}
        self._takeover_until = 0.0
        self._choices = self.system.random("choices")
        self._stub = job_service_pb2_grpc.JobServiceStub(as_channel(self.system.channel(GATEWAY)))
        self._cluster = cluster_service_pb2_grpc.ClusterServiceStub(as_channel(self.system.channel(GATEWAY)))
        self._deleted: set[str] = set()
        self.system.loop.on_error = self._on_error

    def report(self, kind: str, text: str) -> None:
        """Record a violation."""
        self.violations.append(Violation(self.system.loop.elapsed, kind, text))

    async def run(self) -> None:
        """Run the plan, then let everything end, and check what is left."""
        loop = self.system.loop
        await self.system.start()
        background = [
            *(self._begin(self._inject(fault)) for fault in self._plan.faults),
            *(self._begin(self._use(planned)) for planned in self._plan.jobs),
        ]
        watching = self._begin(self._watch())
        await asyncio.wait(background)
        for task in background:
            task.result()
        if await self._wait_until(self._all_ended, _TO_END_S):
            await asyncio.sleep(_QUIET_S)
            watching.cancel()
            self._check_outcomes()
            await self._check_answers()
            await self._clean_up()
        else:
            watching.cancel()
            for job_id in self._unended():
                kind = "stuck" if job_id in self.truth.records else "lost"
                self.report(kind, f"{job_id} ({self._name(job_id)}) is {self._phase(job_id)} for ever")
        loop.current = None

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self.system.loop.create_task(work)

    def _on_error(self, context: dict[str, Any]) -> None:
        self.report("unhandled error", f"{context.get('message')}: {context.get('exception')!r}")

    # The user.

    async def _use(self, planned: PlannedJob) -> None:
        await asyncio.sleep(planned.at)
        name = planned.job.name
        request = pb.SubmitJobRequest(request_id=f"{self.system.seed}-{name}", spec=job_to_proto(planned.job))
        answer = await self._call(f"submit {name}", lambda: self._stub.SubmitJob(request, timeout=8.0))
        if answer is None:
            return
        job_id = answer.jobs[0].job_id
        self._acknowledged[job_id] = planned
        ref = pb.JobRef(job_id=job_id, min_revision=answer.jobs[0].revision)
        await self._call(f"get {name}", lambda: self._stub.GetJob(pb.GetJobRequest(job=ref), timeout=8.0))
        began = self.system.loop.elapsed
        for place, action in enumerate(planned.actions):
            await asyncio.sleep(max(began + action.after - self.system.loop.elapsed, 0.0))
            await self._act(job_id, action, f"{self.system.seed}-{name}-{place}")

    async def _act(self, job_id: str, action: Action, request_id: str) -> None:
        ref = pb.JobRef(job_id=job_id)
        requests: dict[str, Callable[[], Any]] = {
            "cancel": lambda: self._stub.CancelJob(pb.CancelJobRequest(job=ref, request_id=request_id)),
            "delete": lambda: self._stub.DeleteJob(pb.DeleteJobRequest(job=ref, request_id=request_id)),
            "suspend": lambda: self._stub.SuspendJob(pb.SuspendJobRequest(job=ref, request_id=request_id)),
            "resume": lambda: self._stub.ResumeJob(pb.ResumeJobRequest(job=ref, request_id=request_id)),
            "scale": lambda: self._stub.ScaleJob(
                pb.ScaleJobRequest(job=ref, request_id=request_id, replicas=action.target)
            ),
        }
        # A job may have ended before its command.
        expected = {StatusCode.FAILED_PRECONDITION}
        if job_id in self._deleted or action.verb == "delete":
            expected.add(StatusCode.NOT_FOUND)
        if action.verb == "delete":
            self._deleted.add(job_id)
        await self._call(f"{action.verb} {job_id}", requests[action.verb], expected)

    async def _call(self, what: str, call: Callable[[], Any], expected: Collection[StatusCode] = ()) -> Any:
        """Return the answer of a call that is retried as a client does; None after an expected refusal."""
        give_up = self.system.loop.elapsed + _CLIENT_S
        pause_s = 0.1
        while True:
            try:
                return await call()
            except aio.AioRpcError as error:
                if error.code() in expected:
                    return None
                if error.code() not in _RETRIED:
                    self.report("refused", f"{what}: {error.code()} {error.details()}")
                    return None
                if self.system.loop.elapsed > give_up:
                    self.report("unavailable", f"{what}: {error.details()} for {_CLIENT_S:g} s")
                    return None
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, 2.0)

    # The faults.

    async def _inject(self, fault: PlannedFault) -> None:
        await asyncio.sleep(fault.at)
        system = self.system
        instance = system.instances[fault.target % len(system.instances)]
        log.warning("fault: %s %s for %.3f s", fault.kind, instance.name, fault.seconds)
        await self._disturb(fault, instance)

    async def _disturb(self, fault: PlannedFault, instance: Instance) -> None:
        name = "*" if fault.kind in _FAULTS_OF_ALL else instance.name
        self._disturbed_until[name] = max(
            self._disturbed_until.get(name, 0.0), self.system.loop.elapsed + fault.seconds
        )
        self._takeover_until = max(self._takeover_until, self._probe.takeover_of(instance))
        process = instance.process
        if process is None or not process.alive:
            return
        match fault.kind:
            case Fault.KILL:
                instance.kill()
                await asyncio.sleep(fault.seconds)
                if instance.process is process:
                    instance.start()
            case Fault.STOP:
                instance.stop()
            case Fault.PAUSE:
                self.system.loop.pause(process)
                await asyncio.sleep(fault.seconds)
                self.system.loop.resume(process, timers_first=fault.choice < 0.5)
                is_tracker = instance.service == STATUS_TRACKER
                if is_tracker and fault.seconds > STALE_S and instance.process is process:
                    # It must not answer from what it knew before the pause, whether or not others have its partitions now.
                    await self._probe.check(instance, self._acknowledged)
            case Fault.PARTITION:
                self.system.network.cut(process, sends=fault.choice < 0.8, receives=fault.choice > 0.2)
                await asyncio.sleep(fault.seconds)
                self.system.network.heal(process)
            case Fault.CLOCK:
                process.clock_offset_ns += round((2 * fault.choice - 1) * _CLOCK_STEP_NS)
                if fault.choice < 0.5:
                    await asyncio.sleep(fault.seconds)
                    process.clock_offset_ns = 0
            case Fault.SLOW:
                self.system.network.slowness = 1.0 + 40.0 * fault.choice
                await asyncio.sleep(fault.seconds)
                self.system.network.slowness = 1.0
            case Fault.BROKER:
                if self.system.hub.up:
                    self.system.hub.stop_broker()
                    await asyncio.sleep(fault.seconds)
                    self.system.hub.start_broker()
            case Fault.SHIM:
                if (killed := self.system.machine.kill_shim()) is not None:
                    self.truth.disturbed.add(killed.job_id)

    # The checks.

    async def _watch(self) -> None:
        await asyncio.sleep(WARM_UP_S)
        last_probe = 0.0
        while True:
            await asyncio.sleep(1.0)
            now = self.system.loop.elapsed
            latest = max(self._disturbed_until.values(), default=0.0)
            self._gangs.check(now, self._acknowledged, disturbed=now < latest + 10.0)
            if now - last_probe >= _PROBE_S:
                last_probe = now
                for instance in self._probe.instances(
                    self._disturbed_until, takeover_until=self._takeover_until
                ):
                    await self._probe.check(instance, self._acknowledged)

    def _phase(self, job_id: str) -> str:
        record = self.truth.records.get(job_id)
        return (
            "unknown"
            if record is None
            else f"{record.phase} {record.reason.message if record.reason else ''}"
        )

    def _name(self, job_id: str) -> str:
        return self._acknowledged[job_id].job.name

    def _unended(self) -> list[str]:
        records = self.truth.records
        return [
            job_id
            for job_id in self._acknowledged
            if job_id not in self.truth.removed and (job_id not in records or not records[job_id].settled)
        ]

    def _all_ended(self) -> bool:
        return not self._unended()

    async def _wait_until(self, condition: Callable[[], bool], within_s: float) -> bool:
        give_up = self.system.loop.elapsed + within_s
        while not condition():
            if self.system.loop.elapsed > give_up:
                return False
            await asyncio.sleep(0.5)
        return True

    def _check_outcomes(self) -> None:
        for job_id, planned in self._acknowledged.items():
            record = self.truth.records.get(job_id)
            if record is None or job_id in self.truth.disturbed:
                continue
            if record.phase in TERMINAL_PHASES and record.phase not in planned.outcomes:
                reason = record.reason.message if record.reason else ""
                self.report("wrong end", f"{job_id} ({planned.job.name}) is {record.phase}: {reason}")

    async def _check_answers(self) -> None:
        for instance in self.system.instances:
            if not instance.ready:
                waiting = instance.context.readiness.waiting_for if instance.context is not None else "start"
                self.report("not ready", f"{instance.name} waits for {waiting}")
        trackers = self._probe.instances({})
        for instance in trackers:
            if not await self._probe.check(instance, self._acknowledged):
                self.report("unavailable", f"{instance.name} is ready and does not answer")
        await self._call(
            "list nodes", lambda: self._cluster.ListNodes(cluster_service_pb2.ListNodesRequest())
        )

    async def _clean_up(self) -> None:
        for job_id in self._acknowledged:
            if job_id not in self.truth.removed:
                await self._act(job_id, Action(0.0, "delete"), f"{self.system.seed}-{job_id}-clean")
        machine, streams = self.system.machine, self.system.broker.streams
        bucket = streams[f"KV_{JOBS_BUCKET}"]

        def is_clean() -> bool:
            markers = (message.headers or {} for message in bucket.messages.values())
            return (
                not machine.jobs and not machine.ledger.running and all("KV-Operation" in m for m in markers)
            )

        if not await self._wait_until(is_clean, _TO_CLEAN_S):
            records = [m.subject for m in bucket.messages.values() if "KV-Operation" not in (m.headers or {})]
            self.report(
                "left over",
                f"directories {list(machine.jobs)}, runs {list(machine.ledger.running)}, records {records}",
            )


log = logging.getLogger("simulation")


def run_seed(seed: int, kinds: Collection[Fault], defect: Defect | None = None) -> Outcome:
    """Run one seed in this operating system process, which can do nothing else afterwards."""
    gc.disable()
    began = time.process_time()
    clock = time.process_time
    plan = make_plan(seed, kinds)
    run = SimulatedRun(plan, seed)
    if defect is not None:
        defect()
    loop = run.system.loop
    _log_virtual_time(run.system)
    try:
        loop.run_until_complete(run.run())
    except Stuck as stuck:
        run.report("stuck", str(stuck))
    return Outcome(
        seed=seed,
        violations=tuple(run.violations),
        trace=run.truth.trace,
        simulated_s=round(loop.elapsed, 3),
        real_s=clock() - began,
        callbacks=loop.callbacks_run,
        jobs=len(plan.jobs),
        faults=tuple(f"{fault.at:.1f} {fault.kind} {fault.seconds:.1f}" for fault in plan.faults),
    )


def _log_virtual_time(system: VirtualSystem) -> None:
    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            process = system.loop.current
            name = process.name if process is not None else "-"
            more = " ".join(f"{key}={value}" for key, value in getattr(record, "muster_fields", {}).items())
            return (
                f"{system.loop.elapsed:9.3f} {name:18} {record.levelname[:1]} {super().format(record)} {more}"
            )

    for handler in logging.getLogger().handlers:
        handler.setFormatter(Formatter("%(message)s"))


def run_in_child(seed: int, kinds: Collection[Fault], defect: Defect | None = None) -> tuple[int, int]:
    """Start a run in a child; returns its process id and the descriptor that its outcome is read from."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    os.close(reading)
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_LIMIT_S, _CPU_LIMIT_S))
    try:
        outcome = run_seed(seed, kinds, defect)
    except BaseException as error:  # whatever it is, it is the outcome of this seed
        import traceback

        text = "".join(traceback.format_exception(error))
        outcome = Outcome(
            seed=seed,
            violations=(Violation(0.0, "simulation failed", text),),
            trace="",
            simulated_s=0.0,
            real_s=0.0,
            callbacks=0,
            jobs=0,
            faults=(),
        )
    data = msgspec.json.encode(outcome)
    while data:
        data = data[os.write(writing, data) :]
    sys.stderr.flush()
    os._exit(0)


def run_seeds(
    seeds: Sequence[int],
    kinds: Collection[Fault],
    *,
    defect: Defect | None = None,
    at_once: int = 1,
    until: Callable[[Outcome], bool] = lambda _: False,
) -> Iterator[Outcome]:
    """Yield the outcome of each seed as its run ends; no more are started when ``until`` holds for one."""
    gc.freeze()
    waiting = list(reversed(seeds))
    running: dict[int, tuple[int, int, bytearray]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                seed = waiting.pop()
                child, reading = run_in_child(seed, kinds, defect)
                running[reading] = (seed, child, bytearray())
            for reading in select.select(list(running), [], [])[0]:
                data = os.read(reading, 65536)
                seed, child, received = running[reading]
                if data:
                    received += data
                    continue
                os.close(reading)
                del running[reading]
                os.waitpid(child, 0)
                outcome = _decoded(seed, bytes(received))
                if until(outcome):
                    waiting.clear()
                yield outcome
    finally:
        for reading, (_, child, _) in running.items():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(reading)


def _decoded(seed: int, data: bytes) -> Outcome:
    if data:
        return msgspec.json.decode(data, type=Outcome)
    text = f"the process of the run died: more than {_CPU_LIMIT_S} s of CPU time, or a crash"
    return Outcome(
        seed=seed,
        violations=(Violation(0.0, "simulation failed", text),),
        trace="",
        simulated_s=0.0,
        real_s=0.0,
        callbacks=0,
        jobs=0,
        faults=(),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of texts depends on it.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONHASHSEED": "0"})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--step", type=int, default=1, help="increment between seeds")
    parser.add_argument(
        "--kinds", default="all", help=f"kinds of faults: all, none, or some of {','.join(Fault)}"
    )
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--defect", choices=sorted(DEFECTS), help="put this defect in before each run")
    parser.add_argument("--until-found", metavar="KIND", help="stop at the first violation of this kind")
    parser.add_argument("-v", "--verbose", action="store_true", help="show the logs of the services")
    parser.add_argument(
        "--json", action="store_true", help="print each outcome as a line of JSON, and nothing else"
    )
    chosen = parser.parse_args(arguments)
    kinds = {"all": tuple(Fault), "none": ()}.get(chosen.kinds) or (
        () if chosen.kinds == "none" else tuple(Fault(kind) for kind in chosen.kinds.split(","))
    )
    if chosen.verbose:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    else:
        logging.disable(logging.CRITICAL)
    failed = runs = 0
    simulated_s = real_s = 0.0
    for outcome in run_seeds(
        range(chosen.seed, chosen.seed + chosen.count * chosen.step, chosen.step),
        kinds,
        defect=DEFECTS.get(chosen.defect or ""),
        at_once=chosen.jobs,
        until=lambda outcome: chosen.until_found in {one.kind for one in outcome.violations},
    ):
        if chosen.json:
            print(msgspec.json.encode(outcome).decode(), flush=True)
            continue
        runs += 1
        simulated_s += outcome.simulated_s
        real_s += outcome.real_s
        if outcome.violations:
            failed += 1
            print(f"seed {outcome.seed}: faults {list(outcome.faults)}")
            for violation in outcome.violations[:10]:
                print(f"  {violation}")
        elif chosen.count == 1:
            print(
                f"seed {outcome.seed}: {outcome.jobs} jobs, faults {list(outcome.faults)}, trace {outcome.trace}"
            )
    if chosen.json:
        return 0
    speed = simulated_s / max(real_s, 1e-9)
    print(
        f"{runs} runs, {failed} with violations; {simulated_s:.0f} s simulated, {speed:.0f} s a second of CPU time"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
