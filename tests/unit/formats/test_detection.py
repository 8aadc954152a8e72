"""Which format a document is written in, and what somebody is told whose document is in none."""

import pytest

from muster_formats import parse

TAKEN = {
    "TFJob": "kubeflow.org/v1",
    "PyTorchJob": "kubeflow.org/v1",
    "MPIJob": "kubeflow.org/v1",
    "XGBoostJob": "kubeflow.org/v1",
    "PaddleJob": "kubeflow.org/v1",
    "JAXJob": "kubeflow.org/v1",
    "MXJob": "kubeflow.org/v1",
    "Job": "batch/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}


@pytest.mark.parametrize(("kind", "version"), TAKEN.items(), ids=TAKEN)
def test_kubernetes_kinds_are_known_by_version_and_kind(kind: str, version: str) -> None:
    problems = parse(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n").problems
    assert [(problem.code, problem.path) for problem in problems] == [("Required", "spec")]


UNKNOWN = {
    "a kind that its version has not": ("kubeflow.org/v1", "PyTorchJobb", "kind", "did you mean PyTorchJob?"),
    "a version that nobody reads": (
        "kubeflow.org/v1beta2",
        "TFJob",
        "apiVersion",
        "did you mean kubeflow.org/v1?",
    ),
    "a version of the native form": ("muster.dev/v2", "Job", "apiVersion", "did you mean muster.dev/v1?"),
    "a runtime": ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", "kind", "write one of"),
    "neither": ("apps/v1", "Deployment", "kind", "write one of muster.dev/v1 Job, kubeflow.org/v1 TFJob"),
}


@pytest.mark.parametrize(("version", "kind", "key", "fix"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_taken_is_told_with_what_is(version: str, kind: str, key: str, fix: str) -> None:
    (problem,) = parse(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n").problems
    assert (problem.code, problem.path) == ("UnsupportedKind", key)
    assert problem.fix.startswith(fix)


def test_what_is_allowed_are_the_kinds_of_the_version() -> None:
    (problem,) = parse("apiVersion: kubeflow.org/v1\nkind: SparkJob\n").problems
    kinds = ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
    assert problem.allowed == ", ".join(f"kubeflow.org/v1 {kind}" for kind in kinds)


def test_an_experiment_manager_s_file_is_named_as_it_names_itself() -> None:
    (problem,) = parse("version: 7\nkind: experiment\n").problems
    assert (problem.code, problem.found) == ("UnsupportedKind", "version 7 experiment")
