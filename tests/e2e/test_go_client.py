"""A client in another language: Go code generated from ``proto/`` submits, watches and cancels jobs."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import job
from harness import ROOT, Launcher

from muster_testing.go_programs import go_compiler

PLUGINS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled client; ``tests/go_client/go.sum`` pins its modules."""
    folder = tmp_path_factory.mktemp("go_client")
    shutil.copytree(ROOT / "tests/go_client", folder, dirs_exist_ok=True)
    go = str(go_compiler())
    build = [go, "build", "-mod=readonly", "-o"]
    subprocess.run([*build, f"{folder}/plugins/", *PLUGINS], cwd=folder, check=True)
    generate = [sys.executable, str(ROOT / "libs/rpc/generate.py"), "--go", str(folder)]
    path = f"{folder}/plugins{os.pathsep}{os.environ['PATH']}"
    subprocess.run(generate, env={**os.environ, "PATH": path}, check=True)
    subprocess.run([*build, "client", "."], cwd=folder, check=True)
    return folder / "client"


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_go_client_watches_one_job_to_its_end_and_cancels_another(
    launch: Launcher, client: Path, tmp_path: Path
) -> None:
    finishing, cancelled = tmp_path / "finishing.yaml", tmp_path / "cancelled.yaml"
    finishing.write_text(job("finishing", "true", replicas=2))
    cancelled.write_text(job("cancelled", "sleep", "600", replicas=2))
    async with launch() as system:
        process = await asyncio.create_subprocess_exec(
            client, system.address, finishing, cancelled, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()

    assert process.returncode == 0
    report = json.loads(output)
    assert report["events"][:2] == ["WATCH_EVENT_TYPE_ADDED", "WATCH_EVENT_TYPE_SYNCED"]
    assert set(report["events"][2:]) == {"WATCH_EVENT_TYPE_MODIFIED"}
    assert report["finished"] == "PHASE_SUCCEEDED"
    assert report["exit_codes"] == [0, 0]
    assert report["cancelled"] == "PHASE_CANCELLED"
