"""Watches and webhooks continue after kills of the services behind them, without gaps and without repetitions."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import job
from harness import Connect, Launcher

from muster import AsyncClient, Job
from muster_local import LocalSystem
from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2
from muster_testing.conditions import eventually
from muster_testing.webhook_receiver import WebhookReceiver

JOBS = 8
SERVING = ("gateway", "status-tracker")
Moment = tuple[int, str, str]


def history_of(seen: Job) -> list[Moment]:
    return [
        (entry.at.ToMicroseconds(), event_name(entry.event), entry.message) for entry in seen.status.history
    ]


async def follow(muster: AsyncClient, job_id: str) -> list[Job]:
    return [seen async for seen in muster.watch(job_id)]


async def kill_in_turn(system: LocalSystem, count: Callable[[], int]) -> None:
    """Kill each service twice, each time after the watch of all jobs returned something new."""
    for service in SERVING * 2:
        before = count()
        await eventually(lambda before=before: count() > before, timeout_s=40)
        system.kill(service)


@pytest.mark.timeout(170)
async def test_watches_have_no_gaps_or_repetitions_though_services_are_killed(
    launch: Launcher, connect: Connect
) -> None:
    async with launch(nodes=("n1:cpu=2",)) as system, connect(system) as muster:
        all_seen: dict[str, list[Job]] = defaultdict(list)

        async def follow_all() -> None:
            async for response in muster.watch_all():
                all_seen[response.job.job_id].append(response.job)

        watching_all = asyncio.create_task(follow_all())
        killing = asyncio.create_task(
            kill_in_turn(system, lambda: sum(len(seen) for seen in all_seen.values()))
        )
        answers = [await muster.submit(job(f"demo-{n}", "sleep", "2", cpu="1")) for n in range(JOBS)]
        ids = [answer[0].job_id for answer in answers]
        followed = await asyncio.gather(*(follow(muster, job_id) for job_id in ids))
        await killing
        await system.wait_ready()
        await eventually(lambda: all(has_succeeded(all_seen[job_id]) for job_id in ids))
        watching_all.cancel()
        final = [await muster.get(job_id) for job_id in ids]

    for states, end in zip(followed, final, strict=True):
        sequences = [seen.revision for seen in states]
        assert sequences == sorted(set(sequences))
        assert end.status.phase == job_pb2.PHASE_SUCCEEDED
        assert history_of(states[-1]) == history_of(end)
        for earlier, later in itertools.pairwise(states):
            assert history_of(later)[: len(history_of(earlier))] == history_of(earlier)
    for job_id in ids:
        sequences = [seen.revision for seen in all_seen[job_id]]
        assert sequences == sorted(set(sequences))


def has_succeeded(seen: list[Job]) -> bool:
    return bool(seen) and seen[-1].status.phase == job_pb2.PHASE_SUCCEEDED


@pytest.mark.timeout(170)
async def test_webhooks_report_every_phase_though_status_tracker_is_killed(
    launch: Launcher, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a-secret-of-these-tests")
    async with WebhookReceiver() as hook:
        receivers = [{"name": "ci", "url": hook.url, "secretFile": str(secret)}]
        file = tmp_path / "webhooks.json"
        file.write_text(json.dumps({"receivers": receivers}))
        monkeypatch.setenv("MUSTER_WEBHOOKS", str(file))
        async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
            first = (await muster.submit(job("first", "sleep", "1")))[0].job_id
            await eventually(lambda: "Queued" in hook.phases_of(first), timeout_s=30)
            system.kill("status-tracker")
            second = (await muster.submit(job("second", "sleep", "1")))[0].job_id
            await asyncio.gather(follow(muster, first), follow(muster, second))
            await eventually(
                lambda: all("Succeeded" in hook.phases_of(job_id) for job_id in (first, second)), timeout_s=30
            )

    phases = ["Submitted", "Queued", "Placed", "Launching", "Running", "Succeeded"]
    for job_id in (first, second):
        reported = {received.id: received.phase for received in hook.taken() if received.job == job_id}
        # A fast replica may be reported as placed and running at once.
        assert list(reported.values()) == [phase for phase in phases if phase in reported.values()]
        assert {"Submitted", "Queued", "Placed", "Running", "Succeeded"} <= set(reported.values())
