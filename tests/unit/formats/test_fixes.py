"""The fix of a problem leads to a valid document."""

from typing import Any

import pytest
import yaml

from muster_core.models import Severity
from muster_formats import Parsed, parse


def read(**document: Any) -> Parsed:
    return parse(yaml.safe_dump(document, sort_keys=False))


def experiment(**fields: Any) -> Parsed:
    return read(**{"version": 1, "kind": "experiment", "run": {"cmd": "train"}, **fields})


def operation(text: str = "train", **fields: Any) -> Parsed:
    component = {
        "inputs": [{"name": "rate", "type": "float"}],
        "run": {"kind": "job", "container": {"image": "i", "command": [text]}},
    }
    return read(**{"version": 1.1, "kind": "operation", "name": "a", "component": component, **fields})


def replicas(**fields: Any) -> Parsed:
    return experiment(framework="tensorflow", environment={"replicas": {"n_workers": 1, **fields}})


REMEDIES = {
    "an image under run": (
        experiment(run={"cmd": "train", "image": "i"}),
        ("run.image", "move it under build"),
    ),
    "build steps under run": (
        experiment(run={"cmd": "train", "build_steps": ["x"]}),
        ("run.build_steps", "move it under build"),
    ),
    "resources of the workers": (
        replicas(default_worker_resources={"cpu": {"requests": 1}}),
        ("environment.replicas.default_worker_resources", "write default_worker: {resources: ...}"),
    ),
    "resources of the servers": (
        replicas(n_ps=1, default_ps_resources={"cpu": {"requests": 1}}),
        ("environment.replicas.default_ps_resources", "write default_ps: {resources: ...}"),
    ),
    "resources of workers that are not there": (
        experiment(environment={"default_worker_resources": {}}),
        ("environment.default_worker_resources", "write default_worker: {resources: ...}"),
    ),
    "a project": (experiment(project="mnist"), ("project", "")),
    "a search": (
        experiment(hptuning={"matrix": {"rate": {"values": [1]}}}, run={"cmd": "train {{ rate }}"}),
        ("hptuning", "submit a document for each of its runs, with its values under params"),
    ),
    "an older search": (
        experiment(matrix={"rate": {"values": [1]}}, inputs=[{"name": "rate"}]),
        ("matrix", "submit a document for each of its runs, with its values under params"),
    ),
    "a matrix": (
        operation("{{ rate }}", matrix={"kind": "grid", "params": {"rate": {"kind": "choice"}}}),
        ("matrix", "submit an operation for each of its runs, with its values under params"),
    ),
    "joins": (
        operation("{{ rate }}", joins=[{"query": "x", "params": {"rate": {"value": "y"}}}]),
        ("joins", "write the values under params"),
    ),
    "a cache": (operation(params={"rate": {"value": 1}}, cache={}), ("cache", "")),
}


@pytest.mark.parametrize(("parsed", "expected"), REMEDIES.values(), ids=REMEDIES)
def test_an_error_is_reported_once_with_its_fix(parsed: Parsed, expected: tuple[str, str]) -> None:
    assert [(p.path, p.fix) for p in parsed.problems] == [expected]
    assert parsed.jobs == ()


def test_an_input_without_a_value_is_an_error() -> None:
    assert [p.path for p in operation().problems] == ["component.inputs[0].value"]


def test_a_trainer_without_an_image_is_reported_at_the_trainer() -> None:
    text = yaml.safe_dump(
        {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": "a"},
            "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
        },
        sort_keys=False,
    )
    problem = next(p for p in parse(text).problems if p.path == "spec.trainer.image")
    assert text.splitlines()[problem.line - 1] == "  trainer:"


SYNC = "arena submit tfjob --name=a --sync-mode=git --sync-source=https://example.com/x.git"


def test_code_that_cannot_be_fetched_is_only_an_error() -> None:
    (problem,) = parse(f"{SYNC} 'python train.py'").problems
    assert (problem.path, problem.severity) == ("--sync-mode", Severity.ERROR)


def test_code_that_only_kubernetes_fetches_is_a_warning() -> None:
    parsed = parse(f"{SYNC} --image=i 'python train.py'")
    warned = [(p.path, p.code) for p in parsed.problems]
    assert warned == [("--sync-mode", "KubernetesOnly"), ("--sync-source", "KubernetesOnly")]
    assert len(parsed.jobs) == 1


@pytest.mark.parametrize(("written", "fix"), [("'2'", "write 2 without quotes"), ("010", ""), ("1e1", "")])
def test_removing_quotes_is_advised_only_if_that_makes_a_number(written: str, fix: str) -> None:
    text = f"version: 1\nkind: experiment\nframework: pytorch\nenvironment: {{replicas: {{n_workers: {written}}}}}\nrun: {{cmd: x}}"
    assert [(p.code, p.fix) for p in parse(text).problems] == [("WrongType", fix)]


@pytest.mark.parametrize(
    ("request_", "limit", "words"),
    [
        ("cpu: 4", "cpu: 2500m", "the cpu request 4 is above the limit 2500m"),
        ("memory: 2Gi", "memory: 1Gi", "the memory request 2Gi is above the limit 1Gi"),
    ],
)
def test_amounts_in_messages_have_units(request_: str, limit: str, words: str) -> None:
    resources = f"{{requests: {{{request_}}}, limits: {{{limit}}}}}"
    text = f"""apiVersion: muster.dev/v1
kind: Job
metadata: {{name: a}}
spec: {{roles: {{worker: {{command: [x], resources: {resources}}}}}}}
"""
    assert [(p.message, p.fix) for p in parse(text).problems] == [(words, "raise the limit")]
