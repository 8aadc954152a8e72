"""Programs report progress in a file, or in a line of their log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import muster
from muster_runtimes import ProgressReport, ReplicaId
from muster_runtimes.process.logs import ProgressFileReader, parse_progress

RUN = ReplicaId(job_id="j-abcdefghijklmnop", attempt=1, role="worker", index=0)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "progress.json"
    monkeypatch.setenv("MUSTER_PROGRESS_FILE", str(path))
    return path


def _read(files: ProgressFileReader, path: Path) -> list[ProgressReport]:
    return files.read([(RUN, path)])


def test_each_report_is_read_once(file: Path) -> None:
    files = ProgressFileReader()
    assert _read(files, file) == []
    assert muster.report(3, loss=0.5, best=None, note=float("nan"))
    (seen,) = _read(files, file)
    assert (seen.replica, seen.step) == (RUN, 3)
    assert seen.metrics == {"loss": "0.5", "best": "None", "note": "nan"}
    assert _read(files, file) == []
    assert muster.report(4)
    os.utime(file, ns=(1, 1))
    assert [one.step for one in _read(files, file)] == [4]


def test_a_program_without_the_client_writes_the_file_itself(file: Path) -> None:
    file.write_text('{"step": 7, "metrics": {"loss": 0.25, "done": false}}')
    (seen,) = _read(ProgressFileReader(), file)
    assert (seen.step, seen.metrics) == (7, {"loss": "0.25", "done": "False"})
    assert seen.at == file.stat().st_mtime_ns // 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"step": -1}',
        '{"step": "7"}',
        '{"at": 1}',
        '{"step": 1, "at": -5}',
        "\ufffd" * 9,
        "[" * 9999,
    ],
)
def test_an_invalid_progress_file_is_ignored(file: Path, text: str) -> None:
    file.write_text(text)
    assert _read(ProgressFileReader(), file) == []


def test_a_symbolic_link_or_a_pipe_is_not_read(file: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps({"step": 1}))
    file.symlink_to(tmp_path / "elsewhere")
    assert _read(ProgressFileReader(), file) == []
    file.unlink()
    os.mkfifo(file)
    assert _read(ProgressFileReader(), file) == []


def test_without_a_progress_file_the_client_writes_a_log_line() -> None:
    program = "import muster; print(muster.report(1, loss=0.5), muster.report(2), flush=True)"
    environ = {**os.environ, "MUSTER_JOB_ID": RUN.job_id}
    environ.pop("MUSTER_PROGRESS_FILE", None)
    output = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, check=True
    ).stdout
    line, answers = output.splitlines()
    seen = parse_progress(RUN, line.removeprefix(b"muster-progress: "), changed_at=0)
    assert seen is not None
    assert (seen.step, seen.metrics) == (1, {"loss": "0.5"})
    assert answers == b"True True"


def test_metrics_are_limited_in_number_and_length(file: Path) -> None:
    assert muster.report(1, **{f"metric_{number}": "x" * 100 for number in range(60)})
    (seen,) = _read(ProgressFileReader(), file)
    assert len(seen.metrics) == 32
    assert {len(value) for value in seen.metrics.values()} == {64}


def test_outside_of_muster_nothing_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MUSTER_PROGRESS_FILE", raising=False)
    assert not muster.report(1)
    monkeypatch.setenv("MUSTER_PROGRESS_FILE", str(tmp_path / "gone" / "progress.json"))
    assert not muster.report(1)
