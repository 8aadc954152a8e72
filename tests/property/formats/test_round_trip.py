"""A typed spec, a native document and a stored job are the same job, whatever the job."""

import json
import typing
from pathlib import Path
from typing import cast

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from msgspec.structs import fields, replace

from muster_core.events import JobSubmitted, JobValidated
from muster_core.models import Job, JobKind, JobRecord, Severity
from muster_formats import parse, read_spec
from muster_formats.export.conversion import convert
from muster_formats.native import native_text, to_native
from muster_rpc.convert import job_from_proto, job_to_proto
from muster_rpc.v1 import job_pb2
from muster_testing.job_strategies import jobs, stored_jobs

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("examples/**/*.yaml"), *ROOT.glob("tests/golden/formats/**/*.*"))
    if not {"bad", "queues", "webhooks"} & set(path.parts) and not path.name.endswith(".expected.yaml")
)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def read_back(job: Job) -> Job:
    """The one job of the native document of ``job``, without what the document alone can have: warnings of fields without effect."""
    parsed = parse(native_text(job))
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    (read,) = parsed.jobs
    return replace(read, warnings=())


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(jobs())
def test_a_job_is_the_same_in_a_typed_spec_in_a_native_document_and_in_the_store(job: Job) -> None:
    assert [problem for problem in read_spec(job).problems if problem.severity is Severity.ERROR] == []
    wire = job_to_proto(job).SerializeToString()
    assert job_from_proto(job_pb2.JobSpec.FromString(wire)) == job
    assert read_back(job) == job
    (from_json,) = parse(json.dumps(to_native(job))).jobs
    assert replace(from_json, warnings=()) == job


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(stored_jobs())
def test_a_stored_job_keeps_everything_in_the_store_and_on_the_wire(job: Job) -> None:
    record = JobRecord(job_id="j-1", applied_sequence=1, job=job, built_by="j-2")
    assert msgspec.json.decode(msgspec.json.encode(record), type=JobRecord) == record
    for event in (JobValidated(job=job, built_by="j-2"), JobSubmitted(job_id="j", request_id="r", spec=job)):
        assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == event
    wire = job_to_proto(job).SerializeToString()
    assert job_from_proto(job_pb2.JobSpec.FromString(wire)) == job


@settings(max_examples=10, deadline=None, suppress_health_check=SLOW)
@given(
    jobs().filter(lambda job: job.kind is JobKind.BUILD),
    jobs().filter(lambda job: job.kind is not JobKind.BUILD),
)
def test_a_build_and_the_job_that_waits_for_it_are_one_document(build: Job, job: Job) -> None:
    build = replace(build, name="image", namespace=job.namespace)
    job = replace(job, name="training", built_by="image")
    parsed = parse(f"{native_text(build)}---\n{native_text(job)}")
    assert tuple(replace(read, warnings=()) for read in parsed.jobs) == (build, job)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_document_of_any_format_can_be_written_natively(path: Path) -> None:
    jobs = parse(path.read_text(), name=path.stem).jobs
    assert jobs
    read = parse(convert(jobs, "native").text).jobs
    written = [replace(job, warnings=()) for job in read]
    assert written == [replace(job, format="native", warnings=()) for job in jobs]


def test_a_share_of_a_gpu_survives_the_native_format() -> None:
    container = {"name": "tensorflow", "image": "x"}
    annotations = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"containers": [container], "schedulerName": "volcano"},
    }
    document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "share", "annotations": {"DRAGON_KUBESHARE": "true"}},
        "spec": {"tfReplicaSpecs": {"Worker": {"template": template}}},
    }
    parsed = parse(json.dumps(document))
    assert [problem.severity for problem in parsed.problems] == [Severity.WARNING]
    (job,) = parsed.jobs
    assert read_back(job) == replace(job, format="native", warnings=())


def structs_of(annotation: object) -> set[type[msgspec.Struct]]:
    """Every struct that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        found: set[type[msgspec.Struct]] = {annotation}
        for hint in typing.get_type_hints(annotation).values():
            found |= structs_of(hint)
        return found
    return set[type[msgspec.Struct]]().union(*map(structs_of, typing.get_args(annotation)))


def note(value: object, seen: set[tuple[type, str]]) -> None:
    """Note every field of every struct in ``value`` that is not its default."""
    if isinstance(value, msgspec.Struct):
        for field in fields(value):
            inner = getattr(value, field.name)
            required = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
            default = None if required else field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if required or inner != default:
                seen.add((type(value), field.name))
            note(inner, seen)
    elif isinstance(value, tuple):
        for inner in cast("tuple[object, ...]", value):
            note(inner, seen)
    elif isinstance(value, dict):
        for inner in cast("dict[object, object]", value).values():
            note(inner, seen)


def test_every_field_of_the_model_is_drawn() -> None:
    seen: set[tuple[type, str]] = set()

    @seed(1)
    @settings(
        max_examples=150, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=SLOW
    )
    @given(stored_jobs())
    def draw(job: Job) -> None:
        note(job, seen)

    draw()
    due = {(struct, field.name) for struct in structs_of(Job) for field in fields(struct)}
    forgotten = sorted(f"{struct.__name__}.{field}" for struct, field in due - seen)
    assert forgotten == [], "draw them in muster_testing.job_strategies, and see that every format keeps them"
