"""The registry of formats: detection by version and kind, errors for others, and modules imported on demand."""

import importlib
import subprocess
import sys

import pytest

from muster_formats import parse
from muster_formats.registry import REGISTRY, Format, FormatKey, all_formats

_READS_A_TFJOB = """
import sys
from muster_formats import read_document
parsed = read_document("apiVersion: kubeflow.org/v1\\nkind: TFJob")
assert parsed.problems
print(" ".join(name for name in sys.modules if name.startswith("muster_formats.")))
"""


def keys(of: tuple[FormatKey, ...] | tuple[Format, ...]) -> set[tuple[str, str, str, bool]]:
    return {(one.version_key, one.version, one.kind, one.supported) for one in of}


def test_the_registry_agrees_with_the_formats_of_its_modules() -> None:
    assert keys(all_formats()) == keys(REGISTRY)


def test_every_format_of_a_module_is_registered() -> None:
    modules = {entry.module for entry in REGISTRY}
    read: list[Format] = []
    for module in modules:
        read += importlib.import_module(f"muster_formats.{module}").FORMATS
    assert keys(tuple(read)) == keys(REGISTRY)
    assert len(read) == len(REGISTRY)


def test_reading_one_kind_imports_no_other_format() -> None:
    modules = subprocess.run(
        [sys.executable, "-c", _READS_A_TFJOB], check=True, capture_output=True, text=True, timeout=60
    ).stdout.split()
    packages = {name.split(".")[1] for name in modules}
    assert "kubeflow" in packages
    assert not packages & {"polyaxon_v0", "polyaxon_v1", "trainjob", "batch_job", "export", "fields"}
    assert "muster_formats.arena.document" not in modules


SUPPORTED = {
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


@pytest.mark.parametrize(("kind", "version"), SUPPORTED.items(), ids=SUPPORTED)
def test_kubernetes_kinds_are_detected_by_version_and_kind(kind: str, version: str) -> None:
    problems = parse(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\n").problems
    assert [(problem.code, problem.path) for problem in problems] == [("Required", "spec")]


UNKNOWN = {
    "a misspelt kind": ("kubeflow.org/v1", "PyTorchJobb", "kind", "did you mean PyTorchJob?"),
    "an unsupported version": (
        "kubeflow.org/v1beta2",
        "TFJob",
        "apiVersion",
        "did you mean kubeflow.org/v1?",
    ),
    "another version of the native format": (
        "muster.dev/v2",
        "Job",
        "apiVersion",
        "did you mean muster.dev/v1?",
    ),
    "a runtime": ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", "kind", "write one of"),
    "an unknown version and kind": (
        "apps/v1",
        "Deployment",
        "kind",
        "write one of muster.dev/v1 Job, kubeflow.org/v1 TFJob",
    ),
}


@pytest.mark.parametrize(("version", "kind", "key", "fix"), UNKNOWN.values(), ids=UNKNOWN)
def test_an_unsupported_kind_is_reported_with_the_supported_ones(
    version: str, kind: str, key: str, fix: str
) -> None:
    (problem,) = parse(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {{}}\n").problems
    assert (problem.code, problem.path) == ("UnsupportedKind", key)
    assert problem.fix.startswith(fix)


def test_the_allowed_kinds_are_those_of_the_version() -> None:
    (problem,) = parse("apiVersion: kubeflow.org/v1\nkind: SparkJob\n").problems
    kinds = ("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
    assert problem.allowed == ", ".join(f"kubeflow.org/v1 {kind}" for kind in kinds)


def test_a_group_or_pipeline_is_reported_by_its_own_kind() -> None:
    (problem,) = parse("version: 7\nkind: experiment\n").problems
    assert (problem.code, problem.found) == ("UnsupportedKind", "version 7 experiment")
