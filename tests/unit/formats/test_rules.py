"""Rules for roles, counts and resources, in documents and typed jobs."""

import pytest

from muster_core.models import Framework, Job, Problem, Role, Severity, Template
from muster_formats import parse, read_spec
from muster_formats.limits import no_limits
from muster_formats.rules import MAX_ROLES

GOOD: dict[Framework, list[str]] = {
    Framework.PLAIN: ["a"],
    Framework.TENSORFLOW: ["chief", "ps", "worker", "evaluator"],
    Framework.PYTORCH: ["master", "worker"],
    Framework.MPI: ["launcher", "worker"],
    Framework.HOROVOD: ["launcher", "worker"],
    Framework.XGBOOST: ["master", "worker"],
    Framework.PADDLE: ["worker"],
    Framework.JAX: ["worker"],
    Framework.MXNET: ["scheduler", "server", "worker"],
}


def job_of(framework: Framework, roles: dict[str, tuple[int, int, int]]) -> Job:
    """A job whose roles have the counts min, replicas and max."""
    template = Template(image="x")
    drawn = [
        Role(name=name, min=low, replicas=replicas, max=high, template=template)
        for name, (low, replicas, high) in roles.items()
    ]
    return Job(name="a", framework=framework, roles=tuple(drawn))


def document_of(framework: Framework, roles: dict[str, tuple[int, int, int]]) -> str:
    lines = [
        f"    {name}: {{image: x, min: {low}, replicas: {replicas}, max: {high}}}\n"
        for name, (low, replicas, high) in roles.items()
    ]
    head = f"apiVersion: muster.dev/v1\nkind: Job\nmetadata: {{name: a}}\nspec:\n  framework: {framework}\n"
    return f"{head}  roles:\n{''.join(lines)}"


@pytest.mark.parametrize(("framework", "roles"), GOOD.items(), ids=str)
def test_the_roles_of_a_framework_have_no_problem(framework: Framework, roles: list[str]) -> None:
    counts: dict[str, tuple[int, int, int]] = dict.fromkeys(roles, (1, 1, 1))
    assert read_spec(job_of(framework, counts), limits=no_limits).problems == ()
    assert parse(document_of(framework, counts)).problems == ()


def test_every_framework_is_tested() -> None:
    assert set(GOOD) == set(Framework)


ONE, TWO, NONE, MAYBE = (1, 1, 1), (2, 2, 2), (0, 0, 0), (0, 1, 1)
BAD: list[tuple[Framework, dict[str, tuple[int, int, int]], str, str]] = [
    (Framework.TENSORFLOW, {"chief": ONE, "master": ONE}, "Conflict", "spec.roles.master"),
    (Framework.TENSORFLOW, {"chief": (1, 1, 2)}, "OutOfRange", "spec.roles.chief.replicas"),
    (Framework.TENSORFLOW, {"worker": ONE, "evaluator": TWO}, "OutOfRange", "spec.roles.evaluator.replicas"),
    (Framework.PYTORCH, {"master": TWO, "worker": ONE}, "OutOfRange", "spec.roles.master.replicas"),
    (Framework.MPI, {"worker": TWO}, "Required", "spec.roles"),
    (Framework.MPI, {"launcher": NONE, "worker": TWO}, "Required", "spec.roles.launcher.replicas"),
    (Framework.MPI, {"launcher": TWO, "worker": TWO}, "OutOfRange", "spec.roles.launcher.replicas"),
    (Framework.MPI, {"launcher": MAYBE, "worker": TWO}, "OutOfRange", "spec.roles.launcher.min"),
    (Framework.HOROVOD, {"worker": TWO}, "Required", "spec.roles"),
    (Framework.XGBOOST, {"worker": TWO}, "Required", "spec.roles"),
    (Framework.PADDLE, {"master": TWO}, "OutOfRange", "spec.roles.master.replicas"),
    (Framework.JAX, {"worker": ONE, "master": ONE}, "NotAllowed", "spec.roles.master"),
    (Framework.MXNET, {"scheduler": TWO, "worker": ONE}, "OutOfRange", "spec.roles.scheduler.replicas"),
]


def errors(problems: tuple[Problem, ...]) -> list[Problem]:
    return [problem for problem in problems if problem.severity is Severity.ERROR]


@pytest.mark.parametrize(("framework", "roles", "code", "path"), BAD)
def test_wrong_roles_are_rejected_in_documents_and_typed_jobs(
    framework: Framework, roles: dict[str, tuple[int, int, int]], code: str, path: str
) -> None:
    (problem,) = errors(parse(document_of(framework, roles)).problems)
    assert (problem.code, problem.path) == (code, path)
    assert problem.line > 0
    assert problem.fix
    assert [one.code for one in errors(read_spec(job_of(framework, roles), limits=no_limits).problems)] == [
        code
    ]


def test_a_role_without_replicas_breaks_no_rule() -> None:
    assert (
        read_spec(job_of(Framework.TENSORFLOW, {"chief": ONE, "master": NONE}), limits=no_limits).problems
        == ()
    )


def test_a_job_with_too_many_roles_is_rejected() -> None:
    workers = "".join(f"    w{index}: {{container: {{image: x}}}}\n" for index in range(MAX_ROLES))
    text = f"version: 1.1\nkind: component\nname: ray\nrun:\n  kind: raycluster\n  head: {{container: {{image: x}}}}\n  workers:\n{workers}"
    (problem,) = errors(parse(text).problems)
    assert (problem.code, problem.path, problem.found) == ("OutOfRange", "run", str(MAX_ROLES + 1))


def test_a_request_of_an_extended_resource_above_its_limit_is_rejected() -> None:
    amounts = "{requests: {example.com/fpga: 2}, limits: {example.com/fpga: 1}}"
    roles = f"roles: {{worker: {{image: x, resources: {amounts}}}}}"
    (problem,) = parse(
        f"apiVersion: muster.dev/v1\nkind: Job\nmetadata: {{name: a}}\nspec: {{{roles}}}"
    ).problems
    assert (problem.code, problem.path) == ("Conflict", "spec.roles.worker.resources")
    assert problem.message == "the example.com/fpga request 2 is above the limit 1"
