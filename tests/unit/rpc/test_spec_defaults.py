"""Typed specs: the defaults of absent fields, and the problems of invalid ones."""

from __future__ import annotations

import enum

import pytest
from google.protobuf import duration_pb2, struct_pb2

from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    Phase,
    ReplicaState,
    RestartPolicy,
    Strategy,
    SuccessPolicy,
    Template,
)
from muster_rpc.convert import SpecError, job_from_proto
from muster_rpc.v1 import job_pb2


def spec(**fields: object) -> job_pb2.JobSpec:
    message = job_pb2.JobSpec(name="demo", roles=[job_pb2.Role(name="worker")])
    message.MergeFrom(job_pb2.JobSpec(**fields))  # pyright: ignore[reportArgumentType] (any field)
    return message


def test_absent_fields_have_the_defaults_of_the_proto():
    job = job_from_proto(spec())

    (worker,) = job.roles
    assert (worker.replicas, worker.min, worker.max) == (1, 1, 1)
    assert worker.restart_policy is RestartPolicy.NEVER
    assert worker.template == Template(grace_s=30)
    assert job == Job(name="demo", roles=(worker,))
    assert (job.namespace, job.preemptible, job.kind) == ("default", True, JobKind.BATCH)
    assert (job.framework, job.min_available, job.format) == (Framework.PLAIN, None, "native")
    assert (job.category, job.options, job.build, job.built_by) == (None, FrameworkOptions(), None, "")
    assert job.placement.strategy is Strategy.PACK
    assert job.run.backoff_limit == 3
    assert job.run.active_deadline_s is None
    assert job.run.clean_pod_policy is CleanPodPolicy.RUNNING
    assert job.run.success_policy is SuccessPolicy.DEFAULT


def test_absent_bounds_follow_the_replicas():
    role = job_pb2.Role(name="worker", replicas=4, min=2)
    (worker,) = job_from_proto(job_pb2.JobSpec(name="demo", roles=[role])).roles
    assert (worker.replicas, worker.min, worker.max) == (4, 2, 4)


def test_an_explicit_zero_is_not_a_default():
    role = job_pb2.Role(name="worker", replicas=0)
    template = job_pb2.Template(grace=duration_pb2.Duration())
    role.template.CopyFrom(template)
    run = job_pb2.RunPolicy(backoff_limit=0, ttl=duration_pb2.Duration())
    job = job_from_proto(job_pb2.JobSpec(name="demo", preemptible=False, roles=[role], run=run))
    assert job.roles[0].replicas == 0
    assert job.roles[0].template.grace_s == 0
    assert (job.preemptible, job.run.backoff_limit, job.run.ttl_s) == (False, 0, 0)


def test_a_fraction_of_a_second_is_rounded_up():
    run = job_pb2.RunPolicy(active_deadline=duration_pb2.Duration(seconds=1, nanos=1))
    assert job_from_proto(spec(run=run)).run.active_deadline_s == 2


def test_every_invalid_value_is_reported_with_its_path():
    role = job_pb2.Role(name="worker", restart_policy=77)  # pyright: ignore[reportArgumentType] (unknown)
    role.template.grace.seconds = -5
    role.template.pod.CopyFrom(struct_pb2.Struct(fields={"n": struct_pb2.Value(number_value=float("nan"))}))
    bad = job_pb2.JobSpec(name="demo", framework=99, roles=[role])  # pyright: ignore[reportArgumentType] (unknown)
    bad.run.ttl.nanos = -1
    bad.category = 42  # pyright: ignore[reportAttributeAccessIssue] (unknown)
    bad.options.conventions.append(7)  # pyright: ignore[reportArgumentType] (unknown)

    with pytest.raises(SpecError) as refused:
        job_from_proto(bad)

    assert {problem.path for problem in refused.value.problems} == {
        "category",
        "framework",
        "options.conventions[0]",
        "roles[0].restart_policy",
        "roles[0].template.grace",
        "roles[0].template.pod.n",
        "run.ttl",
    }
    policy = next(p for p in refused.value.problems if p.path == "roles[0].restart_policy")
    assert policy.found == "77"
    assert "ON_FAILURE" in policy.allowed


@pytest.mark.parametrize(
    ("core", "names"), [(Phase, job_pb2.Phase.keys()), (ReplicaState, job_pb2.ReplicaState.keys())]
)
def test_every_number_but_zero_has_a_member(core: type[enum.StrEnum], names: list[str]):
    assert {name.partition("_")[2].removeprefix("STATE_") for name in names} == {
        "UNSPECIFIED",
        *(member.name for member in core),
    }
