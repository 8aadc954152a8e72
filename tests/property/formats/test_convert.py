"""A converted document is read as the same job, except for the reported losses."""

from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace

from muster_core.frameworks import gpus_of
from muster_core.models import (
    Framework,
    Job,
    JobKind,
    PlacementPolicy,
    Rendezvous,
    RestartPolicy,
    Role,
    RunPolicy,
    Severity,
    SuccessPolicy,
    Template,
)
from muster_formats import parse
from muster_formats.export.conversion import TARGETS, convert
from muster_formats.native import to_native
from muster_formats.pods import main_container_of
from muster_testing.job_strategies import jobs

FRAMEWORKS: dict[str, tuple[Framework, ...]] = {
    "native": tuple(Framework),
    "tfjob": (Framework.TENSORFLOW,),
    "pytorchjob": (Framework.PYTORCH,),
    "mpijob": (Framework.MPI, Framework.HOROVOD),
    "xgboostjob": (Framework.XGBOOST,),
    "paddlejob": (Framework.PADDLE,),
    "jaxjob": (Framework.JAX,),
    "mxjob": (Framework.MXNET,),
    "batchjob": (Framework.PLAIN,),
    "trainjob": (Framework.PYTORCH, Framework.JAX),
}


ONE_ROLE = ("batchjob", "trainjob")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def eased(job: Job, draw: st.DataObject) -> Job:
    """The job without some details that other formats cannot express, so that not all are rejected."""

    def ease() -> bool:
        return draw.draw(st.integers(0, 7)) > 0

    roles = job.roles
    if ease():
        roles = tuple(replace(role, overrides={}) for role in roles)
    if ease():
        roles = tuple(replace(role, template=unused_gpus(role.template)) for role in roles)
    if ease():
        keep = ("worker",) if draw.draw(st.booleans()) else ()
        roles = tuple(
            role if role.name in keep else replace(role, min=role.replicas, max=role.replicas)
            for role in roles
        )
        roles = tuple(
            replace(role, overrides={i: o for i, o in role.overrides.items() if i < role.max})
            for role in roles
        )
    placement = PlacementPolicy(topology=job.placement.topology, strategy=job.placement.strategy)
    run = replace(job.run, success_policy=SuccessPolicy.DEFAULT, active_deadline_s=60)
    return replace(
        job,
        roles=roles,
        placement=placement if ease() else job.placement,
        run=run if ease() else job.run,
        options=replace(job.options, rendezvous=None) if draw.draw(st.booleans()) else job.options,
    )


def unused_gpus(template: Template) -> Template:
    if template.pod:
        return template
    requests, limits = (
        replace(amounts, gpu=amounts.gpu // 1000 * 1000, gpu_memory=0)
        for amounts in (template.requests, template.limits)
    )
    return replace(template, requests=requests, limits=limits)


def normal(job: Job) -> Job:
    """The job without what is the same in other words.

    Roles that are switched off; slots that are as many as the GPUs; failures forgiven where none is; the Kubernetes template, whose
    reading is compared; limits of what is limited by being requested; the port at which a framework's replicas meet; the rendezvous that an
    elastic job has anyway; the gang's floor that follows from the roles'; whether an evaluator that is not there is in the cluster.
    """
    roles = tuple(normal_role(role, job) for role in job.roles if role.max > 0)
    options = job.options
    elastic = any(role.min < role.max for role in roles) and job.framework in (
        Framework.PYTORCH,
        Framework.PADDLE,
    )
    if elastic and options.rendezvous is None:
        options = replace(options, rendezvous=Rendezvous())
    if job.role("evaluator") is None:
        options = replace(options, evaluator_in_cluster=False)
    if job.framework in (Framework.MPI, Framework.HOROVOD) and not options.processes:
        options = replace(options, processes=str(max(gpus_of(job, "worker", 0), 1)))
    run = job.run
    if all(role.restart_policy is RestartPolicy.NEVER for role in roles):
        run = replace(run, backoff_limit=0)
    floor = sum(role.min for role in roles)
    least = None if job.min_available == floor else job.min_available
    return replace(job, roles=roles, options=options, min_available=least, run=run)


def normal_role(role: Role, job: Job) -> Role:
    templates = {index: normal_template(template, job) for index, template in role.overrides.items()}
    base = normal_template(role.template, job)
    different = {index: template for index, template in templates.items() if template != base}
    return replace(role, template=base, overrides=different)


def normal_template(template: Template, job: Job) -> Template:
    requests, limits = template.requests, template.limits
    port = main_container_of(job.framework, {}).port
    ports = template.ports
    if port and all(one.name != port.name for one in ports):
        ports = (*ports, port)
    same = replace(limits, gpu=requests.gpu, extended=requests.extended)
    return replace(template, pod={}, limits=same, ports=ports)


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict) and value:
        for key, inner in cast("dict[str, object]", value).items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value


def differences(one: Job, other: Job) -> set[str]:
    first, second = (dict(leaves(to_native(normal(job)))) for job in (one, other))
    return {path for path in first | second if first.get(path) != second.get(path)}


def covers(loss: str, path: str) -> bool:
    return path == loss or path.startswith(f"{loss}.") or loss.startswith(f"{path}.")


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(data=st.data())
def test_every_difference_after_conversion_was_reported_as_lost(target: str, data: st.DataObject) -> None:
    kinds = [JobKind.BATCH] * 9 + list(JobKind)
    job = eased(data.draw(jobs(FRAMEWORKS[target], kinds)), data)
    converted = convert([job], target)
    assert converted.rejected == any(loss.severity is Severity.ERROR for loss in converted.losses)
    if converted.rejected:
        assert converted.text == ""
        return
    parsed = parse(converted.text)
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    (read,) = parsed.jobs
    lost = [loss.path for loss in converted.losses]
    if target in ONE_ROLE:
        (role,) = (role for role in job.roles if role.max > 0)
        job = replace(job, roles=(replace(role, name="worker"),))
        of_role = f"spec.roles.{role.name}."
        lost = [path.replace(of_role, "spec.roles.worker.") for path in lost if f"{path}." != of_role]
    assert {path for path in differences(job, read) if not any(covers(loss, path) for loss in lost)} == set()


@pytest.mark.parametrize("target", TARGETS)
def test_a_job_of_every_framework_can_be_written_in_its_format(target: str) -> None:
    leaders = {"mpijob": ["launcher"], "xgboostjob": ["master"]}
    names = [*leaders.get(target, []), "worker"]
    template, again = Template(image="x"), RestartPolicy.ON_FAILURE
    roles = tuple(
        Role(name=name, replicas=1, min=1, max=1, template=template, restart_policy=again) for name in names
    )
    job = Job(name="a", framework=FRAMEWORKS[target][0], roles=roles, run=RunPolicy(backoff_limit=6))
    converted = convert([job, replace(job, name="b")], target)
    assert converted.losses == ()
    read = parse(converted.text).jobs
    assert [differences(*pair) for pair in zip((job, replace(job, name="b")), read, strict=True)] == [
        set(),
        set(),
    ]
