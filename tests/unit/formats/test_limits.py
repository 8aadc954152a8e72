"""Limits of this version and of Kubernetes are reported at the field of the document that exceeds them."""

from typing import Any

import pytest
import yaml

from muster_core.models import ELASTIC_POLICIES, Framework, Job, Problem, Role, Severity, Template
from muster_formats import Parsed, kubernetes_limits, read_document, read_spec

CONTAINER = {"name": "tensorflow", "image": "i", "command": ["c"]}


def native(role: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    roles = {"worker": role or {"command": ["c"]}}
    return {
        "apiVersion": "muster.dev/v1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"roles": roles, **spec},
    }


def tfjob(container: dict[str, Any] = CONTAINER, **spec: Any) -> dict[str, Any]:
    worker = {"template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "a"},
        "spec": {"tfReplicaSpecs": {"Worker": worker}, **spec},
    }


def batchjob(container: dict[str, Any] = CONTAINER, **spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "a"},
        "spec": {"template": {"spec": pod}, **spec},
    }


def trainjob(trainer: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "a"},
        "spec": {
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": trainer or {"image": "i", "command": ["c"]},
            **spec,
        },
    }


def component(container: dict[str, Any] = CONTAINER, **fields: Any) -> dict[str, Any]:
    run = {"kind": "job", "container": container}
    return {"version": 1.1, "kind": "component", "name": "a", "run": run, **fields}


def read(document: dict[str, Any]) -> tuple[Parsed, list[str]]:
    text = yaml.safe_dump(document, sort_keys=False)
    return read_document(text), text.splitlines()


def problems_of(document: dict[str, Any]) -> Problem:
    """The one problem of a document."""
    (problem,) = read(document)[0].problems
    return problem


HELD = {
    "native": native(suspend=True),
    "run policy": tfjob(runPolicy={"suspend": True}),
    "run policy under spec": tfjob(suspend=True),
    "batch": batchjob(suspend=True),
    "trainjob": trainjob(suspend=True),
    "polyaxon": component(isApproved=False),
}


@pytest.mark.parametrize("document", HELD.values(), ids=HELD)
def test_a_suspended_job_exceeds_no_limit(document: dict[str, Any]) -> None:
    parsed, _ = read(document)
    assert parsed.problems == ()
    assert parsed.jobs[0].run.suspend


@pytest.mark.parametrize(
    ("policy", "fix"),
    {
        "pollux": "write one of marginal_gain, dragon, max_min, none",
        "max-min": "did you mean max_min?",
        "No Such": "write one of marginal_gain, dragon, max_min, none",
    }.items(),
)
def test_an_unknown_elastic_policy_is_an_error_that_names_the_known_ones(policy: str, fix: str) -> None:
    document = native(elastic={"policy": policy})
    problem = problems_of(document)
    assert (problem.code, problem.severity, problem.path) == (
        "NotAllowed",
        Severity.ERROR,
        "spec.elastic.policy",
    )
    assert (problem.found, problem.fix) == (policy, fix)
    assert read(document)[1][problem.line - 1].lstrip().startswith("policy:")


@pytest.mark.parametrize("policy", ELASTIC_POLICIES)
def test_a_known_elastic_policy_has_no_problem(policy: str) -> None:
    parsed, _ = read(native(elastic={"policy": policy}))
    assert (parsed.problems, parsed.jobs[0].elastic.policy) == ((), policy)


BARE = {"name": "tensorflow", "image": "i"}
COMMANDLESS = {
    "native": (native({"image": "i"}), "spec.roles.worker"),
    "native with arguments": (native({"image": "i", "args": ["--fast"]}), "spec.roles.worker"),
    "native override": (
        native({"command": ["c"], "overrides": [{"index": 0, "image": "i", "command": []}]}),
        "spec.roles.worker",
    ),
    "tfjob": (tfjob(BARE), "spec.tfReplicaSpecs.Worker"),
    "batch": (batchjob(BARE), "spec.template"),
    "trainjob": (trainjob({"image": "i"}), "spec.trainer"),
    "polyaxon": (component(BARE), "run.container"),
}


@pytest.mark.parametrize(("document", "path"), COMMANDLESS.values(), ids=COMMANDLESS)
def test_a_replica_without_a_command_is_a_warning(document: dict[str, Any], path: str) -> None:
    problem = problems_of(document)
    assert (problem.code, problem.severity, problem.path) == ("KubernetesOnly", Severity.WARNING, path)
    assert "has no command" in problem.message


def test_an_mpi_worker_needs_no_command() -> None:
    roles = {"launcher": {"image": "i", "command": ["mpirun"]}, "worker": {"image": "i", "replicas": 2}}
    assert read(native(framework="mpi", roles=roles))[0].problems == ()


def test_a_command_with_an_error_is_not_also_missing() -> None:
    assert problems_of(native({"image": "i", "command": 3})).code == "WrongType"


def test_an_elastic_job_of_a_fixed_size_framework_is_a_warning() -> None:
    problem = problems_of(native({"command": ["c"], "max": 3}, framework="jax"))
    assert (problem.code, problem.path, problem.found) == ("Ignored", "spec.roles.worker.max", "1 to 3")


def typed(template: Template | None = None, **fields: Any) -> Job:
    made = template or Template(command=("c",))
    return Job(name="a", roles=(Role(name="worker", replicas=1, min=1, max=1, template=made),), **fields)


TYPED = {
    "image": (typed(Template(image="i")), "KubernetesOnly", "spec.roles.worker"),
    "peers": (
        Job(
            name="a",
            framework=Framework.JAX,
            roles=(Role(name="worker", replicas=1, min=1, max=2, template=Template(command=("c",))),),
        ),
        "Ignored",
        "spec.roles.worker.max",
    ),
}


@pytest.mark.parametrize(("job", "code", "path"), TYPED.values(), ids=TYPED)
def test_limits_of_a_typed_job_have_native_field_paths(job: Job, code: str, path: str) -> None:
    parsed = read_spec(job)
    (problem,) = parsed.problems
    assert (problem.code, problem.path) == (code, path)
    warned = problem.severity is Severity.WARNING
    assert [one.warnings for one in parsed.jobs] == ([parsed.problems] if warned else [])


JOB = """
apiVersion: muster.dev/v1
kind: Job
metadata: {name: demo}
spec:
  roles:
    worker:
      %s
      command: [train]
      resources: {gpu: %s}
"""
BUILT = """
version: 1
kind: experiment
build: {image: base, build_steps: [pip install x]}
run: {cmd: train}
"""


def kubernetes_errors(document: str) -> list[tuple[int, str]]:
    parsed = read_document(document, source_name="demo.yaml", limits=kubernetes_limits)
    return [(one.line, one.message) for one in parsed.problems if one.severity is Severity.ERROR]


def test_a_job_that_can_run_as_pods_is_accepted():
    assert kubernetes_errors(JOB % ("image: train:1", "2")) == []


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (JOB % ("", "1"), (9, "worker has no image, which Kubernetes requires")),
        (JOB % ("image: train:1", "500m"), (10, "Kubernetes cannot share a GPU")),
        (BUILT, (4, "Kubernetes cannot build images")),
    ],
)
def test_a_job_that_cannot_run_as_pods_is_rejected_on_kubernetes_only(
    document: str, expected: tuple[int, str]
):
    assert kubernetes_errors(document) == [expected]
    assert read_document(document, source_name="demo.yaml").jobs
