"""Validation of submissions: their parts, their builds, the platform defaults."""

from __future__ import annotations

import json

import msgspec
import pytest

from muster_core.events import JobRejected, JobSubmitted, JobValidated
from muster_core.models import AppliedDefaults, Category, Job, Role, Template
from muster_events.subjects import job_id_of, part_job_id
from muster_formats.defaults import CategoryDefaults, PlatformDefaults
from muster_spec_validator.defaults import NONE_APPLIED, Applied
from muster_spec_validator.validation import read_document, validate

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


def submitted(*parts: str, source: str = "") -> JobSubmitted:
    return JobSubmitted(
        job_id=job_id_of("r"),
        request_id="r",
        submitter="ann",
        document="\n---\n".join(parts),
        source_name=source,
    )


def validated(event: JobSubmitted, applied: Applied = NONE_APPLIED) -> tuple[JobValidated, ...]:
    result = validate(event, applied, at=5)
    assert not isinstance(result, JobRejected), result
    return result


def test_each_part_of_a_document_is_validated_and_names_its_build_by_id() -> None:
    jobs = validated(submitted(document("other"), built("train", "image"), build("image")))

    assert [(one.part, one.parts, one.job.name) for one in jobs] == [
        (0, 3, "other"),
        (1, 3, "train"),
        (2, 3, "image"),
    ]
    assert [one.built_by for one in jobs] == ["", part_job_id(job_id_of("r"), 2), ""]


def test_later_parts_carry_the_submission_and_the_first_does_not() -> None:
    first, second = validated(submitted(document("a"), document("b")))

    assert (first.submission_id, first.submitter, first.submitted_at) == ("", "", 0)
    assert (second.submission_id, second.submitter, second.submitted_at) == (job_id_of("r"), "ann", 5)


def test_one_invalid_part_rejects_the_whole_document() -> None:
    result = validate(submitted(document("a"), document("b", roles={})), NONE_APPLIED)

    assert isinstance(result, JobRejected)


def test_the_current_defaults_are_applied_and_recorded() -> None:
    (event,) = validated(submitted(document("train")), GPU_NODES)

    assert event.defaults_version == 3
    assert event.job.roles[0].template.node_selector == {"pool": "gpu"}
    assert event.job.defaults == AppliedDefaults(
        category=Category.EXPERIMENTS, version=3, fields=("worker.node_selector",)
    )


def test_without_defaults_nothing_is_applied() -> None:
    (event,) = validated(submitted(document("train")))

    assert event.defaults_version == 0
    assert event.job.defaults is None


def test_a_typed_spec_gets_the_defaults_too() -> None:
    job = Job(
        name="train",
        roles=(Role(name="worker", replicas=1, min=1, max=1, template=Template(command=("true",))),),
    )
    event = JobSubmitted(job_id=job_id_of("r"), request_id="r", spec=job)

    assert validated(event, GPU_NODES)[0].job.roles[0].template.node_selector == {"pool": "gpu"}


def test_a_query_applies_the_defaults_as_a_submission_does() -> None:
    parsed = read_document(document("train"), "", "", GPU_NODES)

    assert parsed.jobs == (validated(submitted(document("train")), GPU_NODES)[0].job,)


def test_a_job_that_the_defaults_make_too_large_is_rejected() -> None:
    large = CategoryDefaults(node_selector={f"example.com/{i}": "x" * 60 for i in range(100)})
    overrides = [{"index": i, "image": "own"} for i in range(100)]
    role = {"replicas": 100, "command": ["true"], "overrides": overrides}
    applied = msgspec.structs.replace(GPU_NODES, defaults=PlatformDefaults(experiments=large))

    result = validate(submitted(document("wide", roles={"worker": role})), applied)

    assert isinstance(result, JobRejected)
    assert "with the platform defaults applied, the job wide is too large" in result.problems[0].message


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("experiments/digits.yaml", "digits"),
        ("<stdin>", "experiment"),
        ("-", "experiment"),
        ("", "experiment"),
    ],
)
def test_a_document_without_a_name_is_named_after_its_file(source: str, name: str) -> None:
    text = "version: 1\nkind: experiment\nrun:\n  cmd: echo hello\nbuild:\n  image: python\n"

    assert validated(submitted(text, source=source))[0].job.name == name
