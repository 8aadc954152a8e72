"""The Polyaxon and Arena examples run to their end with replicas as processes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from harness import ROOT, Connect, Launcher, output_of, wait_for

from muster_rpc.v1 import job_pb2

EXAMPLES = ROOT / "examples"
ENDING = (
    "polyaxon/digits.yml",
    "polyaxon/job.yml",
    "polyaxon/pytorchjob.yml",
    "arena/tfjob.sh",
    "arena/two.sh",
)
STAYING = "polyaxon/notebook.yml"
JUPYTER = '#!/bin/sh\ntest "$1" = notebook && exec python -m http.server --bind 127.0.0.1 $MUSTER_PORT\n'


def test_every_example_is_run() -> None:
    found = {f"{path.parent.name}/{path.name}" for path in EXAMPLES.glob("polyaxon/*.yml")}
    found |= {f"{path.parent.name}/{path.name}" for path in EXAMPLES.glob("arena/*.sh")}
    assert found == {*ENDING, STAYING}


async def test_the_examples_that_end_succeed(launch: Launcher, connect: Connect) -> None:
    async with launch() as system, connect(system) as muster:
        jobs = [job for name in ENDING for job in await muster.submit(EXAMPLES / name)]
        assert not [warning for job in jobs for warning in job.warnings]
        for job in jobs:
            ended = await muster.wait(job.job_id)
            output = await output_of(muster, job.job_id)
            assert ended.status.phase == job_pb2.PHASE_SUCCEEDED, f"{job.name}: {output}"


async def test_the_notebook_stays_up_at_its_address(
    launch: Launcher, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "jupyter").write_text(JUPYTER)
    (programs / "jupyter").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    async with launch() as system, connect(system) as muster:
        (submitted,) = await muster.submit(EXAMPLES / STAYING)
        running = await wait_for(muster, submitted.job_id, lambda job: bool(job.status.address))
        assert running.spec.name == "notebook"
        await muster.cancel(submitted.job_id)
        assert (await muster.wait(submitted.job_id)).status.phase == job_pb2.PHASE_CANCELLED
