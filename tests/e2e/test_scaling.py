"""Each service alone is scaled from one instance to three and back under load: nothing is lost or done twice, and calls spread evenly."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from documents import job
from scaled_system import Instance, ScaledSystem

from muster import AsyncClient
from muster_events.catalogue import SERVICES
from muster_events.subjects import PARTITIONS
from muster_rpc.v1 import job_pb2

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("scaling"), pytest.mark.slow]

BALANCED = {
    "gateway": "muster.v1.JobService",
    "spec-validator": "muster.internal.v1.SpecService",
    "status-tracker": "muster.internal.v1.RecordService",
}
"""The gRPC service whose calls are spread over the instances of a service."""

LED = ("scheduler", "scaler")
PARTITIONED = ("status-tracker", "pod-launcher")
TOTAL = 3
CALLS = 150
"""Calls over which the spread is measured."""
UNEVEN = 0.2
READERS = 2
SUBMIT_PAUSE_S = 0.25
READ_PAUSE_S = 0.03
POLL_S = 0.1
CONDITION_S = 60.0


class Load:
    """Submits short jobs and reads, with a client that repeats calls while a service is unavailable.

    Each replica appends its job, attempt and index to ``runs``. ``replicas`` has the replicas of each acknowledged job.
    """

    def __init__(self, muster: AsyncClient, *, prefix: str, runs: Path) -> None:
        self._muster = muster
        self._prefix = prefix
        self._runs = runs
        self.replicas: dict[str, int] = {}
        self._stopped = False

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Apply the load during the block; a call that fails in spite of its repetitions fails the block."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._submit())
            for call in (self._get, self._list, self._validate):
                for _ in range(READERS):
                    group.create_task(self._read(call))
            try:
                yield
            finally:
                # No call is cancelled: a submission might be stored without an acknowledgement.
                self._stopped = True

    async def submitted(self, count: int) -> None:
        """Wait until this many more jobs are acknowledged."""
        wanted = len(self.replicas) + count
        await until(lambda: len(self.replicas) >= wanted)

    async def _submit(self) -> None:
        for number in itertools.count():
            if self._stopped:
                return
            size = 1 + number % 2
            (submitted,) = await self._muster.submit(self._document(number, size))
            self.replicas[submitted.job_id] = size
            await asyncio.sleep(SUBMIT_PAUSE_S)

    async def _read(self, call: Callable[[], Awaitable[object]]) -> None:
        while not self._stopped:
            await call()
            await asyncio.sleep(READ_PAUSE_S)

    async def _get(self) -> None:
        for job_id in list(self.replicas)[-1:]:
            assert (await self._muster.get(job_id)).job_id == job_id

    async def _list(self) -> None:
        known = set(self.replicas)
        assert known <= {one.job_id async for one in self._muster.list()}

    async def _validate(self) -> None:
        assert (await self._muster.validate(self._document(0, 1))).jobs

    def _document(self, number: int, size: int) -> str:
        line = f'echo "$MUSTER_JOB_ID $MUSTER_ATTEMPT $MUSTER_INDEX" >> {self._runs}'
        return job(f"{self._prefix}-{number}", "sh", "-c", line, replicas=size)

    async def verify(self) -> None:
        """Wait until every acknowledged job has ended; each succeeded in one attempt, in which each replica ran once."""
        async with asyncio.timeout(CONDITION_S):
            ended = [await self._muster.wait(job_id) for job_id in self.replicas]
        assert {one.status.phase for one in ended} == {job_pb2.PHASE_SUCCEEDED}
        assert {(one.status.attempt, one.status.failures) for one in ended} == {(1, 0)}
        expected = [f"{job_id} 1 {index}" for job_id, size in self.replicas.items() for index in range(size)]
        assert Counter(self._runs.read_text().splitlines()) == Counter(expected)
        listed = [one.job_id async for one in self._muster.list() if one.name.startswith(self._prefix)]
        assert sorted(listed) == sorted(self.replicas)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scaled(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ScaledSystem]:
    """One system for all services, which are scaled one after the other."""
    async with ScaledSystem.running(tmp_path_factory.mktemp("scaling"), nodes=("n1:cpu=16",)) as system:
        yield system


@pytest.mark.timeout(240)
@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_is_scaled_out_and_in_under_load(
    scaled: ScaledSystem, tmp_path: Path, service: str
) -> None:
    async with AsyncClient(scaled.target("gateway")) as muster:
        load = Load(muster, prefix=service, runs=tmp_path / "runs")
        with scaled.log_on_failure():
            async with load.running():
                await load.submitted(2)
                async with scaled.added(service, TOTAL - 1) as instances:
                    await until_divided(service, instances)
                    if service in BALANCED:
                        await assert_even(instances, BALANCED[service])
                    if service in LED:
                        # One of the added instances leads from here on, and is removed.
                        await scaled.restart_first(service)
                        await until_divided(service, instances)
                        assert not await instances[0].leads(service)
                    await load.submitted(4)
                await until_divided(service, [scaled.first(service)])
                await load.submitted(4)
            await load.verify()


async def until_divided(service: str, instances: Sequence[Instance]) -> None:
    """Wait until one instance leads, or every partition has an owner; more than one never leads."""

    async def is_divided() -> bool:
        if service in LED:
            leading = [await one.leads(service) for one in instances]
            assert leading.count(True) <= 1
            return any(leading)
        # The first instance owns all until the others have joined, and shares are as uneven as the hashes of their names.
        owned = [await one.value("muster_partitions_owned") for one in instances]
        assert {await one.value("muster_partitions") for one in instances} == {PARTITIONS}
        return sum(owned) == PARTITIONS and (max(owned) < PARTITIONS or len(instances) == 1)

    if service in (*LED, *PARTITIONED):
        async with asyncio.timeout(CONDITION_S):
            while not await is_divided():
                await asyncio.sleep(POLL_S)


async def assert_even(instances: Sequence[Instance], grpc_service: str) -> None:
    """Check that calls are spread evenly, from when all instances are called on."""

    async def calls() -> list[float]:
        return [await one.calls(grpc_service) for one in instances]

    async def calls_since(
        before: Sequence[float], is_enough: Callable[[Sequence[float]], bool]
    ) -> list[float]:
        async with asyncio.timeout(CONDITION_S):
            while not is_enough(
                since := [now - then for now, then in zip(await calls(), before, strict=True)]
            ):
                await asyncio.sleep(POLL_S)
        return since

    await calls_since([0.0] * len(instances), all)
    answered = await calls_since(await calls(), lambda since: sum(since) >= CALLS)
    even = sum(answered) / len(answered)
    assert all(abs(one - even) <= UNEVEN * even for one in answered), answered


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(CONDITION_S):
        while not condition():
            await asyncio.sleep(POLL_S)
