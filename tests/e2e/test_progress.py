"""Progress reports of programs, and the speed-up that Muster measures from them."""

from __future__ import annotations

import pytest
from documents import job
from harness import Connect, Launcher, wait_for

from muster_rpc.convert import event_name
from muster_rpc.v1 import job_pb2

QUEUE = """
apiVersion: muster.dev/v1
kind: Queue
metadata: {name: grows}
spec: {elastic: {idlePeriod: 5s}}
"""

TRAIN = """
import json, os, time
from muster import report
done, seen = 0, time.monotonic()
while True:
    time.sleep(0.1)
    with open(os.environ["MUSTER_MEMBERS"]) as file:
        workers = len(json.load(file)["members"]["worker"])
    now = time.monotonic()
    done += 1000 * (now - seen) * workers / (1 + 0.5 * (workers - 1))
    seen = now
    report(int(done), loss=1 / done)
"""
"""Half of the work is serial: two workers are 1.33 times as fast as one. A machine that is slow changes no rate."""


async def test_reports_are_shown_and_a_resize_measures_the_speed_up(
    launch: Launcher, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_PROGRESS_SECONDS", "0.5s")
    command = ("python", "-c", TRAIN)
    document = job("reports", *command, cpu=1, maximum=2, worker={"gracePeriod": 1}, queue="grows")
    async with launch(nodes=("n1:cpu=4",)) as system, connect(system) as muster:
        await muster.apply_queues(QUEUE)
        (submitted,) = await muster.submit(document)
        alone = await wait_for(
            muster, submitted.job_id, lambda seen: len(seen.status.progress.throughput) == 1
        )
        assert alone.status.progress.replica == job_pb2.ReplicaRef(role="worker", attempt=1)
        assert float(alone.status.progress.metrics["loss"]) > 0
        assert (alone.status.speed_up.factor, alone.status.speed_up.measured_sizes) == (1, 1)
        assert alone.status.speed_up.serial_fraction == pytest.approx(0.14)

        both = await wait_for(muster, submitted.job_id, lambda seen: seen.status.speed_up.measured_sizes == 2)
        assert both.status.speed_up.workers == 2
        assert both.status.speed_up.serial_fraction == pytest.approx(0.5, abs=0.3)
        assert "ProgressReported" not in {event_name(entry.event) for entry in both.status.history}
        await muster.cancel(submitted.job_id)
        ended = await muster.wait(submitted.job_id)
        assert ended.status.phase == job_pb2.PHASE_CANCELLED
