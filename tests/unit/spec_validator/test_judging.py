"""What a submission means, with its build and under the platform's defaults."""

from __future__ import annotations

import json

import msgspec
import pytest

from muster_core.events import JobRejected, JobSubmitted, JobValidated
from muster_core.models import AppliedDefaults, Category, Job, Role, Template
from muster_events.subjects import job_id_of
from muster_formats.defaults import CategoryDefaults, PlatformDefaults
from muster_spec_validator.judging import NONE_APPLIED, Applied, judge, read_document

GPU_NODES = Applied(
    version=3, defaults=PlatformDefaults(experiments=CategoryDefaults(node_selector={"pool": "gpu"}))
)


def document(name: str, **spec: object) -> str:
    body = {"roles": {"worker": {"command": ["true"]}}} | spec
    return json.dumps(
        {"apiVersion": "muster.dev/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}
    )


def built(name: str, by: str) -> str:
    return document(name, builtBy=by)


def build(name: str) -> str:
    text = json.loads(document(name, kind="build", build={"steps": ["true"]}))
    del text["spec"]["roles"]
    return json.dumps(text)


def submitted(*parts: str, part: int = 0, said: int | None = None, source: str = "") -> JobSubmitted:
    return JobSubmitted(
        job_id=job_id_of("r", part),
        request_id="r",
        document="\n---\n".join(parts),
        source_name=source,
        part=part,
        parts=len(parts) if said is None else said,
    )


def validated(event: JobSubmitted, applied: Applied = NONE_APPLIED) -> JobValidated:
    verdict = judge(event, applied)
    assert isinstance(verdict, JobValidated), verdict
    return verdict


def test_the_build_is_named_by_its_job_id() -> None:
    parts = (document("other"), built("train", "image"), build("image"))

    assert validated(submitted(*parts, part=1)).built_by == job_id_of("r", 2)
    assert [validated(submitted(*parts, part=part)).built_by for part in (0, 2)] == ["", ""]


def test_a_document_that_was_taken_for_fewer_jobs_is_rejected_rather_than_cut() -> None:
    verdict = judge(submitted(document("a"), document("b"), said=1), NONE_APPLIED)

    assert isinstance(verdict, JobRejected)
    assert [problem.message for problem in verdict.problems] == [
        "the document holds 2 jobs, but was submitted as 1"
    ]


def test_a_submission_that_does_not_say_of_how_many_parts_it_is_means_what_it_meant() -> None:
    assert validated(submitted(document("a"), document("b"), part=1, said=0)).job.name == "b"


def test_the_defaults_in_force_are_filled_in_and_said() -> None:
    verdict = validated(submitted(document("train")), GPU_NODES)

    assert verdict.defaults_version == 3
    assert verdict.job.roles[0].template.node_selector == {"pool": "gpu"}
    assert verdict.job.defaults == AppliedDefaults(
        category=Category.EXPERIMENTS, version=3, fields=("worker.node_selector",)
    )


def test_where_none_were_applied_nothing_is_filled_in() -> None:
    verdict = validated(submitted(document("train")))

    assert verdict.defaults_version == 0
    assert verdict.job.defaults is None


def test_a_typed_spec_gets_the_defaults_too() -> None:
    job = Job(
        name="train",
        roles=(Role(name="worker", replicas=1, min=1, max=1, template=Template(command=("true",))),),
    )
    event = JobSubmitted(job_id=job_id_of("r"), request_id="r", spec=job, parts=1)

    assert validated(event, GPU_NODES).job.roles[0].template.node_selector == {"pool": "gpu"}


def test_a_question_sees_the_defaults_as_a_submission_does() -> None:
    parsed = read_document(document("train"), "", "", GPU_NODES)

    assert parsed.jobs == (validated(submitted(document("train")), GPU_NODES).job,)


def test_a_job_that_the_defaults_make_too_large_is_rejected() -> None:
    large = CategoryDefaults(node_selector={f"example.com/{i}": "x" * 60 for i in range(100)})
    overrides = [{"index": i, "image": "own"} for i in range(100)]
    role = {"replicas": 100, "command": ["true"], "overrides": overrides}
    applied = msgspec.structs.replace(GPU_NODES, defaults=PlatformDefaults(experiments=large))

    verdict = judge(submitted(document("wide", roles={"worker": role})), applied)

    assert isinstance(verdict, JobRejected)
    assert "with the platform's defaults filled in, the job wide is too large" in verdict.problems[0].message


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("experiments/digits.yaml", "digits"),
        ("<stdin>", "experiment"),
        ("-", "experiment"),
        ("", "experiment"),
    ],
)
def test_a_document_without_a_name_has_that_of_its_file(source: str, name: str) -> None:
    text = "version: 1\nkind: experiment\nrun:\n  cmd: echo hello\nbuild:\n  image: python\n"

    assert validated(submitted(text, source=source)).job.name == name
