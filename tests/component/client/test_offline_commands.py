"""Commands without a server: validate, convert, fields and dry runs."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from muster import InvalidDocument, check, convert
from muster._cli.app import app

NATIVE = """apiVersion: muster.dev/v1
kind: Job
metadata: {name: demo}
spec:
  roles:
    worker: {image: trainer, replicas: 2, command: [train]}
"""
BAD = NATIVE.replace("replicas: 2", "replicsa: 2")
NO_SERVER = "127.0.0.1:1"

Run = Callable[..., Result]


@pytest.fixture
def muster(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command where no server answers."""
    monkeypatch.setenv("MUSTER_SERVER", NO_SERVER)

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin, prog_name="muster")

    return run


@pytest.fixture
def good(tmp_path: Path) -> str:
    file = tmp_path / "good.yaml"
    file.write_text(NATIVE)
    return str(file)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD)
    return str(file)


def test_documents_are_validated_without_a_server(muster: Run, good: str, bad: str):
    done = muster("validate", good, bad)
    assert done.exit_code == 3
    assert done.stdout == f"{good}: no problems; means demo\n{bad}: 1 error\n"
    assert f"{bad}:6:30: error[UnknownField]" in done.stderr
    assert "fix: did you mean replicas?" in done.stderr
    assert muster("validate", good).exit_code == 0


def test_standard_input_is_a_document(muster: Run):
    done = muster("validate", "-", stdin=NATIVE)
    assert (done.exit_code, done.stdout) == (0, "<stdin>: no problems; means demo\n")


def test_editors_get_problems_as_data(muster: Run, good: str, bad: str):
    output = json.loads(muster("validate", "-o", "json", bad).stdout)
    (problem,) = output["problems"]
    assert (output["file"], output.get("jobs")) == (bad, None)
    assert {key: problem[key] for key in ("line", "column", "severity", "path", "fix")} == {
        "line": 6,
        "column": 30,
        "severity": "SEVERITY_ERROR",
        "path": "spec.roles.worker.replicsa",
        "fix": "did you mean replicas?",
    }
    several = yaml.safe_load(muster("validate", "-o", "yaml", good, bad).stdout)
    assert [each["file"] for each in several] == [good, bad]
    assert several[0]["jobs"][0]["name"] == "demo"
    assert muster("validate", "-o", "name", good).stdout == "demo\n"


def test_asking_muster_needs_muster(muster: Run, good: str):
    assert muster("validate", "--online", "--timeout", "0.2", good).exit_code == 5
    assert muster("validate", "--server", NO_SERVER, "--timeout", "0.2", good).exit_code == 5


def test_something_has_to_be_named(muster: Run):
    assert muster("validate").exit_code == 2
    assert "nothing to submit" in muster("submit").stderr


def test_validation_needs_neither_grpc_nor_protobuf(good: str):
    code = (
        "import sys\nfrom muster._cli.app import app\n"
        "try:\n    app(prog_name='muster')\nfinally:\n"
        "    print([name for name in ('grpc', 'google.protobuf') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "validate", good], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_document_is_written_in_another_form(muster: Run, good: str):
    done = muster("convert", good, "-n", "ml")
    assert done.exit_code == 0
    native = yaml.safe_load(done.stdout)
    assert (native["kind"], native["metadata"]["namespace"]) == ("Job", "ml")
    tfjob = muster(
        "convert", "-", "-o", "tfjob", stdin="arena submit tf --name=a --image=i --workers=2 'python t.py'"
    )
    assert tfjob.exit_code == 0
    assert yaml.safe_load(tfjob.stdout)["kind"] == "TFJob"


def test_what_cannot_be_written_is_refused(muster: Run, bad: str):
    done = muster(
        "convert", "-", "-o", "tfjob", stdin="arena submit pytorch --name=a --image=i 'python t.py'"
    )
    assert (done.exit_code, done.stdout) == (3, "")
    assert "NotConvertible" in done.stderr
    assert muster("convert", bad).exit_code == 3
    assert muster("convert", bad, "-o", "flags").exit_code == 2


def test_a_command_line_is_shown_as_a_native_document(muster: Run):
    words = (
        "tfjob",
        "--name=mnist",
        "--workers=2",
        "--dry-run=client",
        "-o",
        "yaml",
        "python train.py --steps 5",
    )
    done = muster("submit", *words)
    assert done.exit_code == 0
    spec = yaml.safe_load(done.stdout)["spec"]
    assert spec["framework"] == "tensorflow"
    assert spec["roles"]["worker"]["command"] == ["sh", "-c", "python train.py --steps 5"]
    assert json.loads(
        muster("submit", "--mode=mpi", "--name=m", "--dry-run=client", "-o", "json", "mpirun x").stdout
    )
    summary = muster("submit", *words[:3], "--dry-run=client", "python t.py").stdout
    assert "worker: 2 of sh -c python t.py\nnot submitted" in summary


def test_a_bad_flag_of_a_command_line_is_shown_in_it(muster: Run):
    done = muster("submit", "tfjob", "--name=mnist", "--workrs=2", "--dry-run=client", "python t.py")
    assert done.exit_code == 3
    assert "the command line:1:34: error[UnknownField]" in done.stderr
    assert "did you mean --workers?" in done.stderr


def test_a_dry_run_without_a_server_prints_a_note(muster: Run, good: str):
    done = muster("submit", "-f", good, "--dry-run", "-o", "name", "--timeout", "0.2")
    assert (done.exit_code, done.stdout) == (0, "demo\n")
    assert "shown without the platform defaults" in done.stderr
    assert muster("submit", "-f", good, "--dry-run=server", "--timeout", "0.2").exit_code == 5


def test_a_document_and_a_command_line_are_one_too_many(muster: Run, good: str):
    assert "both given" in muster("submit", "-f", good, "tfjob").stderr


def test_help_for_a_sort_of_job_shows_its_flags(muster: Run):
    done = muster("submit", "pytorchjob", "--help")
    assert done.exit_code == 0
    assert "--nproc-per-node" in done.stdout
    assert "--ps" not in done.stdout
    assert "--follow" in muster("submit", "--help").stdout


def test_bad_defaults_are_refused_before_muster_is_asked(muster: Run):
    done = muster("apply", "-f", "-", stdin="nodeSelectors: {experimnets: {a: b}}")
    assert done.exit_code == 3
    assert "did you mean experiments?" in done.stderr


def test_the_library_reads_and_writes_documents(good: str):
    assert [job.name for job in check(Path(good)).jobs] == ["demo"]
    assert check({"kind": "Job"}).jobs == ()
    assert convert(NATIVE, "native").losses == ()
    with pytest.raises(InvalidDocument) as refused:
        convert(BAD, "native")
    assert refused.value.problems[0].fix == "did you mean replicas?"
    with pytest.raises(InvalidDocument):
        convert("arena submit pytorch --name=a --image=i x", "tfjob")
    with pytest.raises(ValueError, match="not a format"):
        convert(NATIVE, "flags")


def test_fields_are_described_with_type_effect_and_meaning(muster: Run):
    done = muster("fields", "tfjob", "spec.runPolicy")
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[:6] == [
        "FORMAT kubeflow.org/v1 TFJob",
        "FIELD spec.runPolicy <object>",
        "EFFECT supported",
        "Run policy.",
        "",
        "FIELD TYPE EFFECT DESCRIPTION",
    ]
    assert "suspend boolean supported Whether the job is suspended from the start." in lines
    assert "managedBy any ignored Controller of the job. Muster manages what is submitted to it." in lines


def test_the_fields_of_a_document_are_described_as_json_and_by_name(muster: Run):
    described = json.loads(muster("fields", "native", "spec.elastic", "-o", "json").stdout)
    assert described["field"]["path"] == "spec.elastic"
    assert [row["path"] for row in described["fields"]] == [
        "spec.elastic.policy",
        "spec.elastic.coolDown",
        "spec.elastic.step",
    ]
    assert muster("fields", "native", "-o", "name").stdout.split() == [
        "apiVersion",
        "kind",
        "metadata",
        "spec",
    ]
    assert "spec.elastic.step" in muster("fields", "native", "-r", "-o", "name").stdout.split()


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [(("tfjop",), "tfjob"), (("tfjob", "spec.tfReplicaSpec"), "tfReplicaSpecs")],
    ids=["format", "field"],
)
def test_a_misspelt_format_or_field_is_a_usage_error_with_the_nearest_name(
    muster: Run, arguments: tuple[str, ...], nearest: str
):
    done = muster("fields", *arguments)
    assert done.exit_code == 2
    assert done.stderr.rstrip().endswith(f"did you mean {nearest}?")


def test_a_document_of_60_mb_is_refused_without_being_read_whole(muster: Run, tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as large:
        large.truncate(60 << 20)
    tracemalloc.start()
    try:
        refused = muster("validate", str(file))
        with pytest.raises(InvalidDocument):
            convert(file, "native")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "TooLarge" in refused.output
    assert peak < 30 << 20
