"""Published samples of every foreign format are read as the jobs in ``<sample>.expected.yaml``.

Run this module to write the expected files anew; compare them with the samples' documentation.
"""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from muster_core.models import Job
from muster_formats import Parsed, parse
from muster_formats.native import native_text
from muster_formats.source import yaml_text

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"
KINDS = (
    "tfjob",
    "pytorchjob",
    "mpijob",
    "xgboostjob",
    "paddlejob",
    "jaxjob",
    "mxjob",
    "batchjob",
    "trainjob",
    "polyaxon_v0",
    "polyaxon_v1",
    "arena",
)
SAMPLES = {
    f"{kind}/{path.stem}": path
    for kind in KINDS
    for path in sorted((GOLDEN / kind).iterdir())
    if not path.stem.endswith(".expected")
}


class Expected(msgspec.Struct, omit_defaults=True):
    """The jobs of a sample, without their warnings, and code and path of its problems."""

    jobs: list[Job]
    problems: list[tuple[str, str]] = []


def read(sample: Path) -> Parsed:
    return parse(sample.read_text(), name=sample.stem)


def expected_of(parsed: Parsed) -> Expected:
    return Expected(
        jobs=[replace(job, warnings=()) for job in parsed.jobs],
        problems=[(problem.code, problem.path) for problem in parsed.problems],
    )


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_a_published_sample_is_read_as_expected(sample: Path) -> None:
    expected = msgspec.yaml.decode(sample.with_suffix(".expected.yaml").read_bytes(), type=Expected)
    assert expected_of(read(sample)) == expected


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_the_native_form_of_a_sample_describes_the_same_jobs(sample: Path) -> None:
    jobs = read(sample).jobs
    native = parse("---\n".join(native_text(job) for job in jobs)).jobs
    assert [replace(job, warnings=(), format="") for job in native] == [
        replace(job, warnings=(), format="") for job in jobs
    ]


def test_every_kind_has_a_sample_and_no_expected_file_is_left_over() -> None:
    assert {name.partition("/")[0] for name in SAMPLES} == set(KINDS)
    expected = {path.with_suffix("").with_suffix("") for path in GOLDEN.rglob("*.expected.yaml")}
    assert expected == {path.with_suffix("") for path in SAMPLES.values()}


if __name__ == "__main__":
    for sample in SAMPLES.values():
        document: Any = msgspec.to_builtins(expected_of(read(sample)))
        sample.with_suffix(".expected.yaml").write_text(yaml_text([document]))
