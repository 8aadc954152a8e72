"""Jobs given as data obey the rules of native documents; problems have native field paths."""

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
    Problem,
    Rendezvous,
    Resources,
    Role,
    RunPolicy,
    Severity,
    Template,
    Toleration,
)
from muster_formats import read_spec
from muster_formats.limits import no_limits

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


def errors(job: Job) -> list[tuple[str, str]]:
    problems = read_spec(job, limits=no_limits).problems
    return [(one.code, one.path) for one in problems if one.severity is Severity.ERROR]


def test_a_good_job_has_no_problem() -> None:
    assert read_spec(JOB, limits=no_limits).problems == ()


BAD: dict[str, tuple[Job, tuple[str, str]]] = {
    "no name": (replace(JOB, name=""), ("Required", "metadata.name")),
    "a bad name": (replace(JOB, name="Small_Job"), ("BadName", "metadata.name")),
    "a bad namespace": (replace(JOB, namespace="a b"), ("BadName", "metadata.namespace")),
    "a bad queue": (replace(JOB, queue="A"), ("BadName", "spec.queue")),
    "a priority out of range": (replace(JOB, priority=2**40), ("OutOfRange", "spec.priority")),
    "a label": (replace(JOB, labels={"a": "b c"}), ("BadName", "metadata.labels.a")),
    "no roles": (replace(JOB, roles=()), ("Required", "spec.roles")),
    "no replicas": (with_role(replicas=0, min=0), ("NothingToRun", "spec.roles")),
    "two roles of one name": (replace(JOB, roles=(ROLE, ROLE)), ("Duplicate", "spec.roles.worker")),
    "too many roles": (
        replace(JOB, roles=tuple(replace(ROLE, name=f"r{i}") for i in range(101))),
        ("OutOfRange", "spec.roles"),
    ),
    "too many replicas in all": (
        replace(JOB, roles=(replace(ROLE, max=3_000), replace(ROLE, name="ps", max=3_000))),
        ("OutOfRange", "spec.roles"),
    ),
    "min above max": (with_role(min=5), ("Conflict", "spec.roles.worker.min")),
    "fewer than min": (with_role(replicas=1, min=2), ("Conflict", "spec.roles.worker.replicas")),
    "more than max": (with_role(replicas=5), ("Conflict", "spec.roles.worker.replicas")),
    "a negative count": (with_role(min=-1), ("OutOfRange", "spec.roles.worker.min")),
    "an override without its replica": (with_role(overrides={4: TEMPLATE}), ("OutOfRange", "spec.roles.worker.overrides[0].index")),
    "a bad override": (with_role(overrides={1: Template()}), ("NothingToRun", "spec.roles.worker.overrides[0]")),
    "nothing to run": (with_role(template=Template()), ("NothingToRun", "spec.roles.worker")),
    "a negative amount": (with_template(requests=Resources(cpu=-1)), ("BadQuantity", "spec.roles.worker.resources.cpu")),
    "an amount of 2^63": (with_template(requests=Resources(memory=2**63)), ("BadQuantity", "spec.roles.worker.resources.memory")),
    "a resource without a domain": (
        with_template(requests=Resources(extended={"fpga": 1})),
        ("UnknownField", "spec.roles.worker.resources.fpga"),
    ),
    "one and a half gpus": (with_template(requests=Resources(gpu=1500)), ("BadQuantity", "spec.roles.worker.resources.gpu")),
    "gpu memory without a gpu": (with_template(requests=Resources(gpu_memory=1)), ("Conflict", "spec.roles.worker.resources")),
    "more requested than allowed": (with_template(limits=Resources(cpu=1)), ("Conflict", "spec.roles.worker.resources")),
    "a variable": (with_template(env={"A=B": ""}), ("BadName", "spec.roles.worker.env.A=B")),
    "a nul": (with_template(command=("a\0",)), ("ControlCharacter", "spec.roles.worker.command[0]")),
    "a port": (with_template(ports=(Port(name="a", number=0),)), ("OutOfRange", "spec.roles.worker.ports[0].containerPort")),
    "two ports of one name": (
        with_template(ports=(Port(name="a", number=1), Port(name="a", number=2))),
        ("Duplicate", "spec.roles.worker.ports[1]"),
    ),
    "a toleration": (
        with_template(tolerations=(Toleration(key="a", operator="Is"),)),
        ("NotAllowed", "spec.roles.worker.tolerations[0].operator"),
    ),
    "a minimum above all": (replace(JOB, min_available=3), ("Conflict", "spec.minAvailable")),
    "a deadline": (replace(JOB, run=RunPolicy(ttl_s=-1)), ("BadDuration", "spec.run.ttl")),
    "a policy": (replace(JOB, elastic=ElasticPolicy(policy="No Such")), ("NotAllowed", "spec.elastic.policy")),
    "a required topology domain without a topology": (
        replace(JOB, placement=PlacementPolicy(topology_required=True)),
        ("Conflict", "spec.placement.required"),
    ),
    "two chiefs": (
        replace(JOB, framework=Framework.TENSORFLOW, roles=(replace(ROLE, name="chief"),)),
        ("OutOfRange", "spec.roles.chief.replicas"),
    ),
    "a pod without an image": (
        with_template(pod={"spec": {"containers": [{"name": "a"}]}}),
        ("Required", "spec.roles.worker.template.spec.containers[0].image"),
    ),
    "a number that not every JSON reader keeps": (
        with_template(pod={"spec": {"containers": [{"name": "a", "image": "b"}], "hostUsers": 2**60}}),
        ("BadNumber", "spec.roles.worker"),
    ),
    "an affinity": (
        with_template(node_affinity={"requiredDuringSchedulingIgnoredDuringExecution": {}}),
        ("Required", "spec.roles.worker.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"),
    ),
    "a toleration with operator Exists and a value": (
        with_template(tolerations=(Toleration(operator="Exists", value="a"),)),
        ("Conflict", "spec.roles.worker.tolerations[0].value"),
    ),
    "a toleration without a key": (
        with_template(tolerations=(Toleration(),)),
        ("Conflict", "spec.roles.worker.tolerations[0]"),
    ),
    "gpus under their Kubernetes name": (
        with_template(requests=Resources(extended={"nvidia.com/gpu": 1})),
        ("NotAllowed", "spec.roles.worker.resources.nvidia.com/gpu"),
    ),
    "memory as an extended resource": (
        with_template(requests=Resources(extended={"memory": 1})),
        ("NotAllowed", "spec.roles.worker.resources.memory"),
    ),
    "processes": (
        replace(JOB, framework=Framework.PYTORCH, options=FrameworkOptions(processes="0")),
        ("NotAllowed", "spec.options.processes"),
    ),
    "slots in words": (
        replace(JOB, framework=Framework.MPI, roles=(LAUNCHER,), options=FrameworkOptions(processes="gpu")),
        ("NotAllowed", "spec.options.processes"),
    ),
    "a parameter that not every JSON reader keeps": (
        replace(JOB, options=FrameworkOptions(parameters={"a": [2**60]}, conventions=(Convention.POLYAXON,))),
        ("BadNumber", "spec.options.parameters"),
    ),
    "parameters that are too deep": (
        replace(JOB, options=FrameworkOptions(parameters=nested(40), conventions=(Convention.POLYAXON,))),
        ("TooDeep", "spec.options.parameters"),
    ),
    "a backend": (meeting(backend="zookeeper"), ("NotAllowed", "spec.options.rendezvous.backend")),
    "a port to meet at": (meeting(port=0), ("OutOfRange", "spec.options.rendezvous.port")),
    "restarts of a group": (meeting(max_restarts=-1), ("OutOfRange", "spec.options.rendezvous.maxRestarts")),
    "a setting with a comma": (meeting(conf={"a": "1,2"}), ("BadName", "spec.options.rendezvous.conf")),
    "a host with a nul": (meeting(host="a\0"), ("ControlCharacter", "spec.options.rendezvous.host")),
    "a build without steps": (replace(JOB, kind=JobKind.BUILD), ("Required", "spec.build")),
    "a build by another kind": (replace(JOB, build=Build(steps=("make",))), ("Conflict", "spec.build")),
    "a build's variable": (
        replace(JOB, kind=JobKind.BUILD, build=Build(base="a", env={"A=": ""})),
        ("BadName", "spec.build.env.A="),
    ),
    "a build outside of the document": (replace(JOB, built_by="image"), ("Conflict", "spec.builtBy")),
    "applied defaults": (
        replace(JOB, defaults=AppliedDefaults(category=Category.JOBS, version=1)),
        ("Unsupported", "defaults"),
    ),
    "too large": (with_role(overrides={i: replace(TEMPLATE, args=("x" * 200_000,)) for i in range(4)}), ("TooLarge", "spec.roles")),
}  # fmt: skip


@pytest.mark.parametrize(("job", "expected"), BAD.values(), ids=BAD)
def test_a_broken_rule_is_reported_once_at_its_native_field_path(job: Job, expected: tuple[str, str]) -> None:
    assert errors(job) == [expected]


def test_all_problems_are_reported_at_once() -> None:
    job = replace(JOB, name="A", queue="B", roles=(replace(ROLE, name="ps", min=9),))
    assert set(errors(job)) == {
        ("BadName", "metadata.name"),
        ("BadName", "spec.queue"),
        ("Conflict", "spec.roles.ps.min"),
    }


def test_a_valid_job_is_returned_with_its_format_and_warnings() -> None:
    warning = Problem(code="Ignored", path="a", message="b", severity=Severity.WARNING)
    job = replace(JOB, format="tfjob", warnings=(warning,))
    (read,) = read_spec(job, limits=no_limits).jobs
    assert read == job


def test_a_job_with_errors_is_not_returned() -> None:
    assert read_spec(replace(JOB, name=""), limits=no_limits).jobs == ()


def test_fields_of_a_pod_that_muster_decides_are_removed_with_a_warning() -> None:
    pod = {"spec": {"schedulerName": "volcano", "containers": [{"name": "a", "image": "trainer"}]}}
    parsed = read_spec(with_template(pod=pod), limits=no_limits)
    assert [problem.code for problem in parsed.problems] == ["Ignored"]
    assert "schedulerName" not in parsed.jobs[0].roles[0].template.pod["spec"]
