"""`make soak`: one system under steady load, and whether it stays as small as it was.

    soak.py [--minutes 30] [--rate 2] [--data DIR]

Jobs arrive, run and end; watchers come, go and leave in mid-stream; commands are executed in replicas; an elastic job is scaled;
until the baseline, services are killed. Events and ended jobs expire after some minutes, so that the disk can be judged as well. At the
baseline (minute 10, or a third of a shorter run) and at the end the load stops for a while: both quiet states are compared. Prints a
sample each ten seconds, then the result; the exit code is 1 if something grew.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import grpc.aio
import msgspec
from invariants import AcknowledgedJob, Evidence, JobState, Limits, ProcessUse, check
from observed_system import NODES, Equipment, ObservedSystem, running_beside
from workload import ENDLESS, Shape, Workload, persistently

from muster import AsyncClient, MusterError
from muster_events.catalogue import JOBS_STREAM, SERVICES
from muster_local.programs import BROKER

_BASELINE_MIN = 10.0
_SAMPLE_S = 10.0
_QUIET_S = 25.0
_DRAIN_S = 120.0
_EXPIRY_S = 180
_RETAINED = 100
_ACTIVE = ("Submitted", "Queued", "Placed", "Launching", "Running", "Restarting", "Evicted")
_LEAST = 0.5
"""Which part of the intended load must have been carried, so that the result counts."""
_WATCHERS = 20
_MIB = 2**20
_ARRIVALS = (
    Shape(seconds=0.2),
    Shape(workers=2, seconds=0.5),
    Shape(workers=3, seconds=0.8),
    Shape(workers=1, least=1, most=2, seconds=1.0),
)


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The system at one time: processes, undelivered and unacknowledged events, and MiB on the disk by folder."""

    minute: float
    jobs: int
    use: Mapping[str, ProcessUse]
    lag: int
    disk: Mapping[str, float]


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One measure in both quiet states, and how much it may have grown."""

    what: str
    before: float
    after: float
    limit: float

    @property
    def ok(self) -> bool:
        """Whether it stayed below the limit."""
        return self.after <= self.limit

    def __str__(self) -> str:
        return f"{self.what:32} {self.before:10.1f} {self.after:10.1f} {self.limit:10.1f}  {'held' if self.ok else 'GREW'}"


def judge(before: Sample, after: Sample) -> list[Growth]:
    """Compare two quiet states: memory within 10 %, descriptors within what is opened on first use, no lag, flat disk."""
    found: list[Growth] = []
    for name, use in before.use.items():
        now = after.use.get(name, ProcessUse(float("inf"), 1 << 20))
        limit = use.rss + Limits().broker_rss_mib if name == BROKER else use.rss * 1.1
        found.append(Growth(what=f"{name} RSS MiB", before=use.rss, after=now.rss, limit=limit))
        found.append(
            Growth(
                what=f"{name} descriptors",
                before=use.descriptors,
                after=now.descriptors,
                limit=use.descriptors + 2,
            )
        )
    found.append(Growth(what="lag", before=before.lag, after=after.lag, limit=0))
    for folder, mib in before.disk.items():
        # A store grows by whole blocks, which are removed when all of their messages have expired.
        found.append(
            Growth(what=f"{folder} disk MiB", before=mib, after=after.disk[folder], limit=mib * 1.1 + 16)
        )
    return found


class Soak:
    """The load on a system, which can be stopped and started."""

    def __init__(self, system: ObservedSystem, *, rate: float) -> None:
        self.workload = Workload(system)
        self.samples: list[Sample] = []
        self.watched = 0
        self.executed = 0
        self.drained = True
        self._system = system
        self._rate = rate
        self._random = random.Random(20)
        self._began = time.monotonic()
        self._long = ""

    async def run(self, minutes: float) -> tuple[Sample, Sample]:
        """Run for some minutes; return the quiet states at the baseline and at the end."""
        baseline_s = min(_BASELINE_MIN, minutes / 3) * 60
        self._long = await self.workload.submit(
            Shape(workers=1, least=1, most=3, seconds=ENDLESS, outcome="CANCELLED")
        )
        async with running_beside(self._sample_repeatedly()):
            async with running_beside(self._kill_services(baseline_s * 0.8)):
                await self._load(baseline_s)
            before = await self._quiet()
            await self._load(minutes * 60 - baseline_s)
            after = await self._quiet()
        return before, after

    def missing(self, minutes: float) -> list[str]:
        """Return what of the load was not carried, for people; empty if the result counts."""
        seconds = minutes * 60
        found = [] if self.drained else ["the load did not end"]
        for what, count, intended in (
            ("jobs", len(self.workload.acknowledged), seconds * self._rate),
            ("commands in replicas", self.executed, seconds / 2),
            ("watchers", self.watched, seconds * _WATCHERS / 4),
        ):
            if count < intended * _LEAST:
                found.append(f"only {count} {what} of about {intended:.0f}")
        return found

    async def _load(self, seconds: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            work = [
                tasks.create_task(one)
                for one in (
                    self._submit_repeatedly(),
                    self._execute_repeatedly(),
                    self._scale_repeatedly(),
                    *(self._watch_repeatedly() for _ in range(_WATCHERS)),
                )
            ]
            await asyncio.sleep(seconds)
            for task in work:
                task.cancel()

    async def _quiet(self) -> Sample:
        """Wait until the arrived jobs have ended and nothing is under way, and return the state."""
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            with suppress(MusterError):
                active = [job async for job in self._system.muster.list(phases=_ACTIVE)]
                if {job.job_id for job in active} <= {self._long}:
                    break
            await asyncio.sleep(1)
        else:
            print(f"jobs are active {_DRAIN_S:g} s after the load stopped", flush=True)
            self.drained = False
        await asyncio.sleep(_QUIET_S)
        return await self._look()

    async def _submit_repeatedly(self) -> None:
        for shape in itertools.cycle(_ARRIVALS):
            due = time.monotonic() + 1 / self._rate
            with suppress(TimeoutError, MusterError):
                await self.workload.submit(shape)
            await asyncio.sleep(max(due - time.monotonic(), 0))

    async def _watch_repeatedly(self) -> None:
        """Watch for a while, and leave in mid-stream: by cancellation, or with the whole connection."""
        while True:
            seconds = self._random.uniform(0.2, 4.0)
            received = 0
            with suppress(MusterError, TimeoutError, grpc.aio.AioRpcError):
                async with AsyncClient(self._system.local.address, retry_timeout_s=2.0) as muster:
                    stream = muster.watch_all() if self._random.random() < 0.5 else muster.watch(self._long)
                    async with asyncio.timeout(seconds):
                        async for _ in stream:
                            received += 1
            self.watched += received > 0
            await asyncio.sleep(self._random.uniform(0, 0.5))

    async def _execute_repeatedly(self) -> None:
        while True:
            with suppress(MusterError, TimeoutError):
                async with asyncio.timeout(10):
                    async with await self._system.muster.exec(self._long, ["true"]) as command:
                        await _drain(command)
                self.executed += 1
            await asyncio.sleep(1)

    async def _scale_repeatedly(self) -> None:
        for size in itertools.cycle((2, 3, 1)):
            with suppress(MusterError, TimeoutError):
                await persistently(lambda size=size: self._system.muster.scale(self._long, size), within_s=10)
            await asyncio.sleep(5)

    async def _kill_services(self, seconds: float) -> None:
        """Kill each service twice within this time."""
        victims = [*SERVICES, *SERVICES]
        for victim in victims:
            await asyncio.sleep(seconds / len(victims))
            with suppress(KeyError):
                self._system.local.kill(victim)

    async def _sample_repeatedly(self) -> None:
        names = sorted(self._system.pids())
        print("minute   jobs    lag  " + "".join(f"{name:>20}" for name in names) + "   disk MiB", flush=True)
        while True:
            await asyncio.sleep(_SAMPLE_S)
            with suppress(MusterError, OSError):
                sample = await self._look()
                self.samples.append(sample)
                print(_line(sample, names), flush=True)

    async def _look(self) -> Sample:
        answer = await self._system.bus.request(f"$JS.API.CONSUMER.LIST.{JOBS_STREAM}", b"{}")
        consumers = json.loads(answer.data)["consumers"]
        directory = self._system.local.directory
        return Sample(
            minute=(time.monotonic() - self._began) / 60,
            jobs=len(self.workload.acknowledged),
            use=self._system.use(),
            lag=sum(
                one["num_pending"] + one["num_ack_pending"]
                for one in consumers
                if "durable_name" in one["config"]
            ),
            disk={
                "broker": await asyncio.to_thread(_disk_mib, directory.broker),
                "replicas": await asyncio.to_thread(_disk_mib, directory.replicas),
            },
        )


async def soak(folder: Path, *, minutes: float, rate: float) -> bool:
    """Run the soak and print the result; return whether everything held."""
    environ = {"MUSTER_RETENTION_SECONDS": str(_EXPIRY_S), "MUSTER_RETAINED_JOBS": str(_RETAINED)}
    async with ObservedSystem.running(folder, Equipment(environ=environ)) as system:
        await _let_events_expire(system)
        load = Soak(system, rate=rate)
        before, after = await load.run(minutes)
        with suppress(MusterError, TimeoutError):
            await load.workload.cancel_long_jobs()
        missing = load.missing(minutes)
        growths = judge(before, after)
        violations = check(
            Evidence(
                runs=system.ledger.runs(),
                acknowledged=load.workload.acknowledged,
                # Ended jobs expire meanwhile: the ledger alone tells whether they ran.
                states={one.job_id: _as_expected(one) for one in load.workload.acknowledged},
                nodes=NODES,
            )
        )
    print(f"\n{'quiet state':32} {'baseline':>10} {'end':>10} {'limit':>10}")
    for growth in growths:
        print(growth)
    for problem in (*violations, *missing):
        print(problem)
    held = not violations and not missing and all(one.ok for one in growths)
    print(
        f"{len(load.workload.acknowledged)} jobs, {load.watched} watchers, {load.executed} commands in replicas, "
        f"{minutes:g} minutes: {'held' if held else 'violated'}"
    )
    return held


async def _let_events_expire(system: ObservedSystem) -> None:
    """Limit the age of job events, as an operator may, so that the disk is flat within minutes instead of a month."""
    answer = await system.bus.request(f"$JS.API.STREAM.INFO.{JOBS_STREAM}", b"")
    config = {**json.loads(answer.data)["config"], "max_age": _EXPIRY_S * 10**9}
    await system.bus.request(f"$JS.API.STREAM.UPDATE.{JOBS_STREAM}", json.dumps(config).encode())


def _as_expected(job: AcknowledgedJob) -> JobState:
    return JobState(phase=job.outcome)


def _line(sample: Sample, names: Sequence[str]) -> str:
    figures = "".join(
        f"{use.rss:13.1f}/{use.descriptors:<6}" if (use := sample.use.get(name)) else f"{'-':>20}"
        for name in names
    )
    disk = " ".join(f"{name} {mib:.1f}" for name, mib in sample.disk.items())
    return f"{sample.minute:6.1f} {sample.jobs:6} {sample.lag:6}  {figures}   {disk}"


def _disk_mib(folder: Path) -> float:
    total = 0
    # Unlike a glob, it goes on when a folder is removed meanwhile.
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(parent, name).lstat().st_blocks * 512
    return total / _MIB


async def _drain(stream: AsyncIterable[object]) -> None:
    async for _ in stream:
        pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="soak", description="Keep a system under load, and judge its growth."
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long (default 30)")
    parser.add_argument("--rate", type=float, default=2.0, help="jobs per second (default 2)")
    parser.add_argument(
        "--data", type=Path, default=Path("/var/tmp"), metavar="DIR", help="a folder on a disk"
    )
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    folder = Path(tempfile.mkdtemp(prefix="muster-soak-", dir=options.data))
    try:
        held = asyncio.run(soak(folder, minutes=options.minutes, rate=options.rate))
    finally:
        log = folder / "data/muster.log"
        if log.exists():
            shutil.copy(log, options.data / "muster-soak.log")
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
