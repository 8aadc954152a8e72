"""TrainJob: which runtimes are known, and what may stand beside them."""

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


def told(parsed: Parsed, severity: Severity = Severity.ERROR) -> list[tuple[str, str]]:
    return [(p.code, p.path) for p in parsed.problems if p.severity is severity]


def job_of(parsed: Parsed) -> Job:
    assert told(parsed) == []
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
        {
            "name": "torch-distributed",
            "kind": "ClusterTrainingRuntime",
            "apiGroup": "trainer.kubeflow.org",
        },
        Framework.PYTORCH,
    ),
}


@pytest.mark.parametrize(("runtime", "framework"), KNOWN.values(), ids=KNOWN)
def test_a_runtime_that_is_known_is_a_framework(runtime: Any, framework: Framework) -> None:
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
def test_a_runtime_of_a_cluster_is_refused_with_what_to_write_instead(name: str, fix: str) -> None:
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
def test_a_namesake_of_a_known_runtime_is_not_it(runtime: dict[str, str]) -> None:
    assert told(parsed(runtime)) == [("Unsupported", "spec.runtimeRef.name")]


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
    "a patch of nobody": (
        {"podTemplateOverrides": [{"targetJobs": [{}]}]},
        ("Required", "spec.podTemplateOverrides[0].targetJobs[0].name"),
    ),
}


@pytest.mark.parametrize(("said", "expected"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_told_where_its_author_wrote_it(
    said: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert told(parsed(**said)) == [expected]


def test_a_toleration_that_is_wrong_is_told_deep_in_its_patch() -> None:
    ((code, path),) = told(
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
    assert [code for code, _ in told(read, Severity.WARNING)] == ["Ignored"]
    assert job_of(read).roles[0].template.node_selector == {}


def test_labels_of_the_spec_are_the_job_s() -> None:
    assert job_of(parsed(labels={"b": "spec", "c": "spec"})).labels == {
        "a": "metadata",
        "b": "spec",
        "c": "spec",
    }


@pytest.mark.parametrize("said", ["auto", 4], ids=str)
def test_processes_of_a_node_are_a_word_or_a_number(said: str | int) -> None:
    assert job_of(parsed(trainer={**TRAINER, "numProcPerNode": said})).options.processes == str(said)


def test_what_is_wrong_with_the_runtime_hides_nothing_of_the_trainer() -> None:
    said = told(parsed("our-own", {**TRAINER, "numNodes": -1, "command": "torchrun"}))
    assert said == [
        ("Unsupported", "spec.runtimeRef.name"),
        ("WrongType", "spec.trainer.command"),
        ("OutOfRange", "spec.trainer.numNodes"),
    ]


def test_what_is_wrong_with_the_runtime_hides_nothing_of_the_name() -> None:
    document = "{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: A}, spec: {runtimeRef: {name: b}}}"
    assert told(parse(document)) == [
        ("BadName", "metadata.name"),
        ("Required", "spec.trainer"),
        ("Unsupported", "spec.runtimeRef.name"),
    ]
