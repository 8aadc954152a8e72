"""TrainJob: supported runtimes, and patches of their pods."""

from typing import Any

import pytest
import yaml

from muster_core.models import Framework, Job, Severity
from muster_formats import Parsed, parse

TRAINER = {"image": "trainer", "command": ["torchrun", "train.py"]}


def parsed(runtime: Any = "torch-distributed", trainer: Any = TRAINER, **spec: Any) -> Parsed:
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "small", "labels": {"a": "metadata", "b": "metadata"}},
        "spec": {
            "runtimeRef": {"name": runtime} if isinstance(runtime, str) else runtime,
            "trainer": trainer,
            **spec,
        },
    }
    return parse(yaml.safe_dump(document))


def problems_of(parsed: Parsed, severity: Severity = Severity.ERROR) -> list[tuple[str, str]]:
    return [(p.code, p.path) for p in parsed.problems if p.severity is severity]


def job_of(parsed: Parsed) -> Job:
    assert problems_of(parsed) == []
    return parsed.jobs[0]


def override(**spec: Any) -> dict[str, Any]:
    return {"podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": spec}]}


def patch(step: str = "node", **template: Any) -> dict[str, Any]:
    job = {"name": step, "template": {"spec": {"template": template}}}
    runtime = {"template": {"spec": {"replicatedJobs": [job]}}}
    return {"runtimePatches": [{"manager": "example.com/me", "trainingRuntimeSpec": runtime}]}


KNOWN: dict[str, tuple[Any, Framework]] = {
    "torch": ("torch-distributed", Framework.PYTORCH),
    "jax": ("jax-distributed", Framework.JAX),
    "in full": (
        {"name": "torch-distributed", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"},
        Framework.PYTORCH,
    ),
}


@pytest.mark.parametrize(("runtime", "framework"), KNOWN.values(), ids=KNOWN)
def test_a_supported_runtime_decides_the_framework(runtime: Any, framework: Framework) -> None:
    job = job_of(parsed(runtime))
    assert job.framework is framework
    (role,) = job.roles
    assert (role.name, role.replicas, role.template.image) == ("worker", 1, "trainer")


FIXES = {
    "deepspeed-distributed": "write it as an MPIJob (kubeflow.org/v1)",
    "xgboost-distributed": "write it as an XGBoostJob (kubeflow.org/v1)",
    "our-own": "use torch-distributed or jax-distributed, without kind, and write the runtime's settings under trainer",
}


@pytest.mark.parametrize(("name", "fix"), FIXES.items(), ids=FIXES)
def test_another_runtime_is_rejected_with_a_fix(name: str, fix: str) -> None:
    (problem,) = parsed(name).problems
    assert (problem.code, problem.path, problem.fix) == ("Unsupported", "spec.runtimeRef.name", fix)


@pytest.mark.parametrize(
    "runtime",
    [
        {"name": "torch-distributed", "kind": "TrainingRuntime"},
        {"name": "torch-distributed", "apiGroup": "example.com"},
    ],
    ids=["of a namespace", "of another group"],
)
def test_a_runtime_of_another_kind_with_a_supported_name_is_rejected(runtime: dict[str, str]) -> None:
    assert problems_of(parsed(runtime)) == [("Unsupported", "spec.runtimeRef.name")]


BAD: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no runtime": ({"runtime": None}, ("Required", "spec.runtimeRef")),
    "a runtime without a name": ({"runtime": {}}, ("Required", "spec.runtimeRef.name")),
    "no trainer": ({"trainer": None}, ("Required", "spec.trainer")),
    "no image": ({"trainer": {"command": ["a"]}}, ("Required", "spec.trainer.image")),
    "no nodes": ({"trainer": {**TRAINER, "numNodes": 0}}, ("NothingToRun", "spec.trainer.numNodes")),
    "an unknown field": ({"trainer": {**TRAINER, "nodes": 2}}, ("UnknownField", "spec.trainer.nodes")),
    "a command in one": ({"trainer": {**TRAINER, "command": "a b"}}, ("WrongType", "spec.trainer.command")),
    "a bad amount": (
        {"trainer": {**TRAINER, "resourcesPerNode": {"limits": {"memory": "8GB"}}}},
        ("BadQuantity", "spec.trainer.resourcesPerNode.limits.memory"),
    ),
    "a bad variable": (
        {"trainer": {**TRAINER, "env": [{"name": "A", "value": 1}]}},
        ("WrongType", "spec.trainer.env[0].value"),
    ),
    "too many processes": (
        {"trainer": {**TRAINER, "numProcPerNode": 5000}},
        ("NotAllowed", "spec.trainer.numProcPerNode"),
    ),
    "an initializer": ({"initializer": {"dataset": {}}}, ("Unsupported", "spec.initializer")),
    "overrides of 2.0": ({"podSpecOverrides": []}, ("Unsupported", "spec.podSpecOverrides")),
    "a container that is none": (
        override(containers=[{"name": "helper"}]),
        ("Unsupported", "spec.podTemplateOverrides[0].spec.containers[0].name"),
    ),
    "variables in the wrong place": (
        override(containers=[{"name": "node", "env": []}]),
        ("Unsupported", "spec.podTemplateOverrides[0].spec.containers[0].env"),
    ),
    "a selector that is none": (
        override(nodeSelector={"a b": "c"}),
        ("BadName", "spec.podTemplateOverrides[0].spec.nodeSelector.a b"),
    ),
    "a patch of an unknown job": (
        {"podTemplateOverrides": [{"targetJobs": [{}]}]},
        ("Required", "spec.podTemplateOverrides[0].targetJobs[0].name"),
    ),
}


@pytest.mark.parametrize(("given", "expected"), BAD.values(), ids=BAD)
def test_an_error_of_the_generated_template_is_reported_in_the_document(
    given: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert problems_of(parsed(**given)) == [expected]


def test_an_error_of_a_toleration_is_reported_in_its_patch() -> None:
    ((code, path),) = problems_of(
        parsed(**patch(spec={"tolerations": [{"effect": "NoShedule", "operator": "Exists"}]}))
    )
    assert code == "NotAllowed"
    assert path.startswith("spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].")
    assert path.endswith("template.spec.tolerations[0].effect")


def test_patches_are_merged_and_later_ones_win() -> None:
    spec = {
        **override(nodeSelector={"disk": "ssd", "zone": "a"}, serviceAccountName="first"),
        **patch(spec={"nodeSelector": {"zone": "b"}, "serviceAccountName": "second"}),
    }
    template = job_of(parsed(**spec)).roles[0].template
    assert template.node_selector == {"disk": "ssd", "zone": "b"}
    assert template.pod["spec"]["serviceAccountName"] == "second"


def test_a_patch_of_another_job_has_no_effect() -> None:
    read = parsed(**patch("dataset-initializer", spec={"nodeSelector": {"a": "b"}}))
    assert [code for code, _ in problems_of(read, Severity.WARNING)] == ["Ignored"]
    assert job_of(read).roles[0].template.node_selector == {}


def test_labels_of_the_spec_become_the_job_s() -> None:
    assert job_of(parsed(labels={"b": "spec", "c": "spec"})).labels == {
        "a": "metadata",
        "b": "spec",
        "c": "spec",
    }


@pytest.mark.parametrize("given", ["auto", 4], ids=str)
def test_processes_of_a_node_are_a_keyword_or_a_number(given: str | int) -> None:
    assert job_of(parsed(trainer={**TRAINER, "numProcPerNode": given})).options.processes == str(given)


def test_an_unsupported_runtime_hides_no_error_of_the_trainer() -> None:
    given = problems_of(parsed("our-own", {**TRAINER, "numNodes": -1, "command": "torchrun"}))
    assert given == [
        ("Unsupported", "spec.runtimeRef.name"),
        ("WrongType", "spec.trainer.command"),
        ("OutOfRange", "spec.trainer.numNodes"),
    ]


def test_an_unsupported_runtime_hides_no_error_of_the_name() -> None:
    document = "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: A}, spec: {runtimeRef: {name: b}}}"
    assert problems_of(parse(document)) == [
        ("BadName", "metadata.name"),
        ("Required", "spec.trainer"),
        ("Unsupported", "spec.runtimeRef.name"),
    ]
