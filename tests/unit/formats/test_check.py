"""The rules for a job that came as data."""

from typing import Any

import pytest
from msgspec.structs import replace

from muster_core.models import (
    AppliedDefaults,
    Build,
    Category,
    Convention,
    ElasticPolicy,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    PlacementPolicy,
    Port,
    Rendezvous,
    Resources,
    Role,
    RunPolicy,
    Template,
    Toleration,
)
from muster_formats.typed.check import check

TEMPLATE = Template(image="trainer", requests=Resources(cpu=500, gpu=500, gpu_memory=1024))
ROLE = Role(name="worker", replicas=2, min=1, max=4, template=TEMPLATE)
JOB = Job(name="small", roles=(ROLE,))


LAUNCHER = Role(name="launcher", replicas=1, min=1, max=1, template=TEMPLATE)


def nested(levels: int) -> dict[str, Any]:
    return {"a": nested(levels - 1)} if levels else {}


def meeting(**fields: Any) -> Job:
    return replace(
        JOB, framework=Framework.PYTORCH, options=FrameworkOptions(rendezvous=Rendezvous(**fields))
    )


def with_role(**fields: Any) -> Job:
    return replace(JOB, roles=(replace(ROLE, **fields),))


def with_template(**fields: Any) -> Job:
    return with_role(template=replace(TEMPLATE, **fields))


def told(job: Job) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in check(job)]


def test_a_good_job_has_no_problem() -> None:
    assert check(JOB) == ()


BAD: dict[str, tuple[Job, tuple[str, str]]] = {
    "no name": (replace(JOB, name=""), ("Required", "name")),
    "a bad name": (replace(JOB, name="Small_Job"), ("BadName", "name")),
    "a bad namespace": (replace(JOB, namespace="a b"), ("BadName", "namespace")),
    "a bad queue": (replace(JOB, queue="A"), ("BadName", "queue")),
    "a priority out of range": (replace(JOB, priority=2**40), ("OutOfRange", "priority")),
    "a label": (replace(JOB, labels={"a": "b c"}), ("BadName", "labels.a")),
    "no roles": (replace(JOB, roles=()), ("Required", "roles")),
    "no replicas": (with_role(replicas=0, min=0), ("NothingToRun", "roles")),
    "two roles of one name": (replace(JOB, roles=(ROLE, ROLE)), ("Duplicate", "roles[1].name")),
    "too many roles": (
        replace(JOB, roles=tuple(replace(ROLE, name=f"r{i}") for i in range(101))),
        ("OutOfRange", "roles"),
    ),
    "too many replicas in all": (
        replace(JOB, roles=(replace(ROLE, max=3_000), replace(ROLE, name="ps", max=3_000))),
        ("OutOfRange", "roles"),
    ),
    "min above max": (with_role(min=5), ("Conflict", "roles[0].min")),
    "fewer than min": (with_role(replicas=1, min=2), ("Conflict", "roles[0].replicas")),
    "more than max": (with_role(replicas=5), ("Conflict", "roles[0].replicas")),
    "a negative count": (with_role(min=-1), ("OutOfRange", "roles[0].min")),
    "an override of nobody": (with_role(overrides={4: TEMPLATE}), ("OutOfRange", "roles[0].overrides[4]")),
    "a bad override": (with_role(overrides={1: Template()}), ("NothingToRun", "roles[0].overrides[1]")),
    "nothing to run": (with_role(template=Template()), ("NothingToRun", "roles[0].template")),
    "a negative amount": (with_template(requests=Resources(cpu=-1)), ("OutOfRange", "roles[0].template.requests.cpu_milli")),
    "an amount of 2^63": (with_template(requests=Resources(memory=2**63)), ("OutOfRange", "roles[0].template.requests.memory_bytes")),
    "a resource without a domain": (
        with_template(requests=Resources(extended={"fpga": 1})),
        ("BadName", "roles[0].template.requests.extended.fpga"),
    ),
    "one and a half gpus": (with_template(requests=Resources(gpu=1500)), ("BadQuantity", "roles[0].template.requests")),
    "gpu memory without a gpu": (with_template(requests=Resources(gpu_memory=1)), ("Conflict", "roles[0].template.requests")),
    "more requested than allowed": (with_template(limits=Resources(cpu=1)), ("Conflict", "roles[0].template.requests")),
    "a variable": (with_template(env={"A=B": ""}), ("BadName", "roles[0].template.env.A=B")),
    "a nul": (with_template(command=("a\0",)), ("ControlCharacter", "roles[0].template")),
    "a port": (with_template(ports=(Port(name="a", number=0),)), ("OutOfRange", "roles[0].template.ports[0].number")),
    "two ports of one name": (
        with_template(ports=(Port(name="a", number=1), Port(name="a", number=2))),
        ("Duplicate", "roles[0].template.ports[1].name"),
    ),
    "a toleration": (with_template(tolerations=(Toleration(operator="Is"),)), ("NotAllowed", "roles[0].template.tolerations[0].operator")),
    "a minimum above all": (replace(JOB, min_available=3), ("Conflict", "min_available")),
    "a deadline": (replace(JOB, run=RunPolicy(ttl_s=-1)), ("OutOfRange", "run.ttl")),
    "a policy": (replace(JOB, elastic=ElasticPolicy(policy="No Such")), ("BadName", "elastic.policy")),
    "a domain that is required but not named": (
        replace(JOB, placement=PlacementPolicy(topology_required=True)),
        ("Conflict", "placement.topology_required"),
    ),
    "two chiefs": (
        replace(JOB, framework=Framework.TENSORFLOW, roles=(replace(ROLE, name="chief"),)),
        ("OutOfRange", "roles[0].replicas"),
    ),
    "a pod without an image": (
        with_template(pod={"spec": {"containers": [{"name": "a"}]}}),
        ("Required", "roles[0].template.pod.spec.containers[0].image"),
    ),
    "a number that not everyone keeps": (
        with_template(pod={"spec": {"containers": [{"name": "a", "image": "b"}], "hostUsers": 2**60}}),
        ("BadNumber", "roles[0].template"),
    ),
    "an affinity": (
        with_template(node_affinity={"requiredDuringSchedulingIgnoredDuringExecution": {}}),
        ("Required", "roles[0].template.node_affinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"),
    ),
    "a toleration of everything but by value": (
        with_template(tolerations=(Toleration(operator="Exists", value="a"),)),
        ("Conflict", "roles[0].template.tolerations[0].value"),
    ),
    "a toleration of nothing": (
        with_template(tolerations=(Toleration(),)),
        ("Conflict", "roles[0].template.tolerations[0].operator"),
    ),
    "gpus under their Kubernetes name": (
        with_template(requests=Resources(extended={"nvidia.com/gpu": 1})),
        ("NotAllowed", "roles[0].template.requests.extended.nvidia.com/gpu"),
    ),
    "memory twice": (
        with_template(requests=Resources(extended={"memory": 1})),
        ("BadName", "roles[0].template.requests.extended.memory"),
    ),
    "processes": (
        replace(JOB, framework=Framework.PYTORCH, options=FrameworkOptions(processes="0")),
        ("NotAllowed", "options.processes"),
    ),
    "slots in words": (
        replace(JOB, framework=Framework.MPI, roles=(LAUNCHER,), options=FrameworkOptions(processes="gpu")),
        ("NotAllowed", "options.processes"),
    ),
    "a convention twice": (
        replace(JOB, options=FrameworkOptions(conventions=(Convention.POLYAXON, Convention.POLYAXON))),
        ("Duplicate", "options.conventions"),
    ),
    "a parameter that not everyone keeps": (
        replace(JOB, options=FrameworkOptions(parameters={"a": [2**60]}, conventions=(Convention.POLYAXON,))),
        ("BadNumber", "options.parameters"),
    ),
    "parameters that are too deep": (
        replace(JOB, options=FrameworkOptions(parameters=nested(40), conventions=(Convention.POLYAXON,))),
        ("TooDeep", "options.parameters"),
    ),
    "a backend": (meeting(backend="zookeeper"), ("NotAllowed", "options.rendezvous.backend")),
    "a port to meet at": (meeting(port=0), ("OutOfRange", "options.rendezvous.port")),
    "restarts of a group": (meeting(max_restarts=-1), ("OutOfRange", "options.rendezvous.max_restarts")),
    "a setting with a comma": (meeting(conf={"a": "1,2"}), ("BadName", "options.rendezvous.conf")),
    "a host with a nul": (meeting(host="a\0"), ("ControlCharacter", "options.rendezvous")),
    "a build of nothing": (replace(JOB, kind=JobKind.BUILD), ("Required", "build")),
    "a build by another kind": (replace(JOB, build=Build(steps=("make",))), ("Conflict", "build")),
    "a build's variable": (
        replace(JOB, kind=JobKind.BUILD, build=Build(base="a", env={"A=": ""})),
        ("BadName", "build.env.A="),
    ),
    "a build elsewhere": (replace(JOB, built_by="image"), ("Conflict", "built_by")),
    "defaults of one's own": (
        replace(JOB, defaults=AppliedDefaults(category=Category.JOBS, version=1)),
        ("NotTaken", "defaults"),
    ),
    "too large": (with_role(overrides={i: replace(TEMPLATE, args=("x" * 200_000,)) for i in range(4)}), ("TooLarge", "roles")),
}  # fmt: skip


@pytest.mark.parametrize(("job", "expected"), BAD.values(), ids=BAD)
def test_a_broken_rule_is_told_once_with_the_path_into_the_spec(job: Job, expected: tuple[str, str]) -> None:
    assert told(job) == [expected]


def test_all_problems_are_told_at_once() -> None:
    job = replace(JOB, name="A", queue="B", roles=(replace(ROLE, name="C", min=9, template=Template()),))
    assert set(told(job)) == {
        ("BadName", "name"),
        ("BadName", "queue"),
        ("BadName", "roles[0].name"),
        ("Conflict", "roles[0].min"),
        ("NothingToRun", "roles[0].template"),
    }
