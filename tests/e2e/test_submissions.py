"""Guarantees of a submission: idempotency, durability, atomicity, and every problem of a rejected document."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from documents import job
from harness import Connect, Launcher

from muster import InvalidDocument, Rejected
from muster_rpc.v1 import job_pb2

TIMEOUT_S = 30
BAD = sorted((Path(__file__).resolve().parents[2] / "examples/bad").glob("*.yaml"))


async def test_the_same_request_id_submits_once(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        document = job("once", "true")
        (first,) = await muster.submit(document, request_id="request-1")
        (second,) = await muster.submit(document, request_id="request-1")
        together = await asyncio.gather(*(muster.submit(document, request_id="request-2") for _ in range(8)))

        assert (first.duplicate, second.duplicate) == (False, True)
        assert first.job_id == second.job_id
        assert first.trace_id == second.trace_id
        assert len({answer[0].job_id for answer in together}) == 1
        assert sum(not answer[0].duplicate for answer in together) == 1
        for job_id in (first.job_id, together[0][0].job_id):
            assert (await muster.wait(job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        assert len([listed async for listed in muster.list()]) == 2

        with pytest.raises(Rejected, match="used for another submission"):
            await muster.submit(job("other", "true"), request_id="request-1")


async def test_acknowledged_jobs_survive_the_kill_of_all_processes(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system:
        async with connect(system) as muster:
            (submitted,) = await muster.submit(
                job("survivor", "sleep", "0.5", replicas=2), validation_wait_s=0
            )
            pids = system.kill_all()
        assert len(pids) == 7
        await system.wait_ready()
        async with connect(system) as muster:
            ended = await muster.wait(submitted.job_id)
    assert ended.name == "survivor"
    assert ended.status.phase == job_pb2.PHASE_SUCCEEDED
    assert ended.status.attempt == 1


async def test_an_invalid_document_is_refused_with_all_problems_and_queues_nothing(
    launch: Launcher, connect: Connect
) -> None:
    assert len(BAD) >= 10
    async with launch() as system, connect(system) as muster:
        for path in BAD:
            with pytest.raises(InvalidDocument) as refused:
                await muster.submit(path, validation_wait_s=TIMEOUT_S)
            problems = refused.value.problems
            assert problems, path.name
            for problem in problems:
                assert problem.code, path.name
                assert problem.message, path.name
                assert problem.line > 0, f"{path.name}: {problem}"
            assert any(problem.path for problem in problems) or "yaml" in problems[0].code.lower(), path.name
        two_mistakes = job("fine", "true").replace('"replicas": 1', '"replicas": -1, "replcias": 2')
        with pytest.raises(InvalidDocument) as refused:
            await muster.submit(two_mistakes, validation_wait_s=TIMEOUT_S)
        assert len([p for p in refused.value.problems if p.severity == "error"]) >= 2

        # A rejection returns no revision to wait for; the records follow later.
        async with asyncio.timeout(TIMEOUT_S):
            while len([j async for j in muster.list(phases=["Rejected"])]) < len(BAD) + 1:
                await asyncio.sleep(0.1)
        assert [j async for j in muster.list(phases=["Submitted", "Queued", "Placed", "Running"])] == []
        assert [node.replicas async for node in muster.nodes()] == [[]]


async def test_a_typed_spec_is_validated_like_a_document(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        template = job_pb2.Template(command=["true"], requests=job_pb2.Resources(cpu_milli=100))
        spec = job_pb2.JobSpec(
            name="typed", roles=[job_pb2.Role(name="worker", replicas=2, template=template)]
        )
        (submitted,) = await muster.submit(spec)
        assert (await muster.wait(submitted.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED

        spec.name = "Not A Name"
        spec.roles[0].min = 5
        with pytest.raises(InvalidDocument) as refused:
            await muster.submit(spec, validation_wait_s=TIMEOUT_S)
        assert {problem.path for problem in refused.value.problems} >= {"metadata.name"}
        assert len(refused.value.problems) >= 2


async def test_a_document_of_several_parts_submits_all_jobs_or_none(
    launch: Launcher, connect: Connect
) -> None:
    async with launch() as system, connect(system) as muster:
        both = f"{job('part-a', 'true')}\n---\n{job('part-b', 'true')}\n"
        submitted = await muster.submit(both, request_id="two-parts", validation_wait_s=TIMEOUT_S)
        assert [part.name for part in submitted] == ["part-a", "part-b"]
        for part in submitted:
            assert (await muster.wait(part.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
        again = await muster.submit(both, request_id="two-parts", validation_wait_s=TIMEOUT_S)
        assert [part.job_id for part in again] == [part.job_id for part in submitted]
        assert [part.duplicate for part in (*submitted, *again)] == [False, False, True, True]
        for other in (
            f"{job('part-a', 'true')}\n---\n{job('part-b', 'false')}\n",
            f"{both}---\n{job('part-e', 'true')}\n",
        ):
            with pytest.raises(Rejected, match="used for another submission"):
                await muster.submit(other, request_id="two-parts")

        with pytest.raises(InvalidDocument):
            await muster.submit(f"{job('part-c', 'true')}\n---\n{job('part-d', 'true', replicas=-1)}\n")
        assert not [j async for j in muster.list() if j.name in ("part-c", "part-d")]


async def test_a_stopped_scheduler_delays_its_jobs_and_loses_none(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        pid = system.services["scheduler"]
        os.kill(pid, signal.SIGSTOP)
        try:
            (submitted,) = await muster.submit(job("patient", "true"))
            async with asyncio.timeout(10):
                while (await muster.get(submitted.job_id)).status.phase != job_pb2.PHASE_QUEUED:
                    await asyncio.sleep(0.05)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (await muster.wait(submitted.job_id)).status.phase == job_pb2.PHASE_SUCCEEDED
