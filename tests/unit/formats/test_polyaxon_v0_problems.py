"""Problems of Polyaxon 0.x documents: errors and warnings at their source location."""

from typing import Any

import pytest
import yaml

from muster_core.models import Severity
from muster_formats import Parsed, parse

RUN = {"run": {"cmd": "train"}}
TWO = {"n_workers": 2}


def document(kind: str = "experiment", **fields: Any) -> Parsed:
    """A document of a kind, which trains unless it says otherwise; without the fields that are None."""
    whole = {"version": 1, "kind": kind, **({} if kind == "build" else RUN), **fields}
    return parse(yaml.safe_dump({key: value for key, value in whole.items() if value is not None}))


def tensorflow(**replicas: Any) -> Parsed:
    return document(framework="tensorflow", environment={"replicas": {"n_workers": 2, **replicas}})


def messages(parsed: Parsed, severity: Severity = Severity.ERROR) -> list[tuple[str, str]]:
    return [(p.code, p.path) for p in parsed.problems if p.severity is severity]


def limits(requests: Any, most: Any) -> dict[str, Any]:
    return {"requests": requests, "limits": most}


ERRORS: dict[str, tuple[Parsed, tuple[str, str]]] = {
    "an unknown key": (document(enviroment={}), ("UnknownField", "enviroment")),
    "an unknown key of the environment": (
        document(environment={"node_selectors": {}}),
        ("UnknownField", "environment.node_selectors"),
    ),
    "an unknown key of a worker": (
        tensorflow(worker=[{"index": 0, "resource": {}}]),
        ("UnknownField", "environment.replicas.worker[0].resource"),
    ),
    "an unknown resource": (
        document(environment={"resources": {"disk": {}}}),
        ("UnknownField", "environment.resources.disk"),
    ),
    "replicas without a framework": (
        document(environment={"replicas": TWO}),
        ("Required", "environment.replicas"),
    ),
    "replicas beside the environment without a framework": (document(replicas=TWO), ("Required", "replicas")),
    "replicas of a framework that has none": (
        document(framework="xgboost", environment={"replicas": TWO}),
        ("NotAllowed", "framework"),
    ),
    "parameter servers of pytorch": (
        document(framework="pytorch", environment={"replicas": {**TWO, "n_ps": 1}}),
        ("Conflict", "environment.replicas.n_ps"),
    ),
    "parameter servers of horovod": (
        document(framework="horovod", environment={"replicas": {**TWO, "n_ps": 1}}),
        ("Conflict", "environment.replicas.n_ps"),
    ),
    "a default for parameter servers of horovod": (
        document(environment={"horovod": {**TWO, "default_ps": {"labels": {"a": "b"}}}}),
        ("Conflict", "environment.horovod.default_ps"),
    ),
    "parameter servers under MPI": (
        document(backend="mpi", framework="tensorflow", environment={"replicas": {**TWO, "n_ps": 1}}),
        ("Conflict", "environment.replicas.n_ps"),
    ),
    "an index above the count": (
        tensorflow(worker=[{"index": 2}]),
        ("OutOfRange", "environment.replicas.worker[0].index"),
    ),
    "an index of a role that has no replica": (
        tensorflow(ps=[{"index": 0}]),
        ("OutOfRange", "environment.replicas.ps[0].index"),
    ),
    "a negative index": (
        tensorflow(worker=[{"index": -1}]),
        ("OutOfRange", "environment.replicas.worker[0].index"),
    ),
    "the same index twice": (
        tensorflow(worker=[{"index": 1}, {"index": 1}]),
        ("Duplicate", "environment.replicas.worker[1].index"),
    ),
    "the same index in both lists": (
        tensorflow(worker=[{"index": 1}], worker_resources=[{"index": 1}]),
        ("Duplicate", "environment.replicas.worker_resources[0].index"),
    ),
    "no index": (tensorflow(worker=[{"labels": {}}]), ("Required", "environment.replicas.worker[0].index")),
    "a negative count": (
        document(framework="tensorflow", environment={"replicas": {"n_workers": -1}}),
        ("OutOfRange", "environment.replicas.n_workers"),
    ),
    "a count with a fraction": (
        document(framework="tensorflow", environment={"replicas": {"n_workers": 1.5}}),
        ("WrongType", "environment.replicas.n_workers"),
    ),
    "too many replicas": (
        document(framework="tensorflow", environment={"replicas": {"n_workers": 5000}}),
        ("OutOfRange", "environment.replicas"),
    ),
    "requests above limits": (
        document(environment={"resources": {"cpu": limits(2, 1)}}),
        ("Conflict", "environment.resources.cpu.requests"),
    ),
    "requests above limits of one worker": (
        tensorflow(worker=[{"index": 1, "resources": {"memory": limits(2, 1)}}]),
        ("Conflict", "environment.replicas.worker[0].resources.memory.requests"),
    ),
    "requests and limits of GPUs that differ": (
        document(environment={"resources": {"gpu": limits(1, 2)}}),
        ("Conflict", "environment.resources.gpu.requests"),
    ),
    "half a GPU": (
        document(environment={"resources": {"gpu": {"requests": 0.5}}}),
        ("BadQuantity", "environment.resources.gpu.requests"),
    ),
    "memory with a suffix": (
        document(environment={"resources": {"memory": {"requests": "256Mi"}}}),
        ("BadQuantity", "environment.resources.memory.requests"),
    ),
    "negative cores": (
        document(environment={"resources": {"cpu": {"requests": -1}}}),
        ("BadQuantity", "environment.resources.cpu.requests"),
    ),
    "cores without requests and limits": (
        document(environment={"resources": {"cpu": 2}}),
        ("WrongType", "environment.resources.cpu"),
    ),
    "both layouts of resources": (
        document(environment={"resources": {"requests": {"cpu": 1}, "cpu": {"requests": 1}}}),
        ("Conflict", "environment.resources.cpu"),
    ),
    "both spellings of requests": (
        document(environment={"resources": {"gpu": {"requests": 1, "request": 1}}}),
        ("Conflict", "environment.resources.gpu.request"),
    ),
    "workers where there are no replicas": (
        document(environment={"worker": [{"index": 0}]}),
        ("Conflict", "environment.worker"),
    ),
    "replicas given twice": (
        document(framework="tensorflow", environment={"tensorflow": TWO, "replicas": TWO}),
        ("Conflict", "environment.tensorflow"),
    ),
    "a framework that contradicts the older form": (
        document(framework="pytorch", environment={"tensorflow": TWO}),
        ("Conflict", "framework"),
    ),
    "a backend elsewhere": (document(backend="external"), ("NotAllowed", "backend")),
    "replicas of a job": (
        document("job", environment={"replicas": TWO}),
        ("Unsupported", "environment.replicas"),
    ),
    "replicas of a notebook": (
        document("notebook", environment={"replicas": TWO}),
        ("Unsupported", "environment.replicas"),
    ),
    "an experiment that runs nothing": (document(run=None), ("Required", "run")),
    "a job that runs nothing": (document("job", run={"cmd": []}), ("Required", "run.cmd")),
    "a command that is a number": (document(run={"cmd": 3}), ("WrongType", "run.cmd")),
    "a search": (document(hptuning={"matrix": {}}), ("Unsupported", "hptuning")),
    "an older search": (document(settings={"matrix": {}}), ("Unsupported", "settings")),
    "a group": (document("group", hptuning={}), ("Unsupported", "kind")),
    "a pipeline": (document("pipeline", ops=[]), ("Unsupported", "kind")),
    "a misspelt kind": (document("experimnt"), ("UnsupportedKind", "kind")),
    "a build without an image": (document("build", build_steps=["a"]), ("Required", "image")),
    "a Dockerfile": (document(build={"dockerfile": "Dockerfile"}), ("Unsupported", "build.dockerfile")),
    "a repository": (document(build={"image": "i", "git": "x"}), ("Unsupported", "build.git")),
    "a build by its number": (document(build={"ref": 12}), ("Required", "build.image")),
    "a build given twice": (document("build", image="i", build={"image": "j"}), ("Conflict", "image")),
    "variables that are no pairs": (
        document(build={"image": "i", "env_vars": [["A"]]}),
        ("WrongType", "build.env_vars[0]"),
    ),
    "a variable twice": (
        document(build={"image": "i", "env_vars": [["A", 1], ["A", 2]]}),
        ("Duplicate", "build.env_vars[1][0]"),
    ),
    "parameters by both names": (
        document(params={"a": 1}, declarations={"a": 1}),
        ("Conflict", "declarations"),
    ),
    "a parameter from another run": (
        document(params={"a": "{{ ops.first.outputs.x }}"}),
        ("Unsupported", "params.a"),
    ),
    "a parameter with something from another run in it": (
        document(params={"a": {"b": ["{{ ops.first.outputs.x }}"]}}),
        ("Unsupported", "params.a.b[0]"),
    ),
    "an unknown parameter": (
        document(params={"rate": 1}, run={"cmd": "train {{ rat }}"}),
        ("NotAllowed", "run.cmd"),
    ),
    "an input without a value": (document(inputs=[{"name": "a"}]), ("Required", "inputs[0]")),
    "an input twice": (
        document(inputs=[{"name": "a", "default": 1}, {"name": "a", "default": 1}]),
        ("Duplicate", "inputs[1]"),
    ),
    "a parameter of another type": (
        document(inputs=[{"name": "a", "type": "int"}], params={"a": "x"}),
        ("WrongType", "params.a"),
    ),
    "an element of another type": (
        document(inputs=[{"name": "a", "type": "int", "is_list": True}], params={"a": [1, "x"]}),
        ("WrongType", "params.a[1]"),
    ),
    "a parameter that is no list": (
        document(inputs=[{"name": "a", "is_list": True}], params={"a": 1}),
        ("WrongType", "params.a"),
    ),
    "a parameter that is no option": (
        document(inputs=[{"name": "a", "options": [1, 2]}], params={"a": 3}),
        ("NotAllowed", "params.a"),
    ),
    "volumes by both names": (
        document(environment={"data_refs": ["a"], "persistence": {"data": ["a"]}}),
        ("Conflict", "environment.persistence"),
    ),
    "a reference without a name": (
        document(environment={"secret_refs": [{"mount_path": "/x"}]}),
        ("Required", "environment.secret_refs[0].name"),
    ),
    "a name that is none": (document(name="a b"), ("BadName", "name")),
    "a toleration without a key": (
        document(environment={"tolerations": [{"value": "x"}]}),
        ("Conflict", "environment.tolerations[0]"),
    ),
}

WARNINGS: dict[str, tuple[Parsed, list[tuple[str, str]]]] = {
    "the older form": (document(environment={"tensorflow": TWO}), [("Misspelt", "environment.tensorflow")]),
    "worker_default": (
        tensorflow(worker_default={"labels": {"a": "b"}}),
        [("Misspelt", "environment.replicas.worker_default")],
    ),
    "worker_resources": (
        tensorflow(worker_resources=[{"index": 0, "cpu": {"requests": 1}}]),
        [("Misspelt", "environment.replicas.worker_resources")],
    ),
    "a default of a role without replicas": (
        tensorflow(default_ps={"labels": {"a": "b"}}),
        [("Ignored", "environment.replicas.default_ps")],
    ),
    "restarts of one worker": (
        tensorflow(worker=[{"index": 0, "max_restarts": 1}]),
        [("Ignored", "environment.replicas.worker[0].max_restarts")],
    ),
    "a backend without replicas": (document(backend="kubeflow"), [("Ignored", "backend")]),
    "a name that is written differently": (document(name="My_Exp"), [("BadName", "name")]),
    "lines that are joined": (document(run={"cmd": "one\ntwo"}), [("Ignored", "run.cmd")]),
    "outputs of other runs": (
        document(environment={"outputs": {"jobs": [1]}}),
        [("Ignored", "environment.outputs")],
    ),
    "a log level": (document(logging={"level": "INFO"}), [("Ignored", "logging.level")]),
    "an idle key within logging": (
        document("job", logging={"formatter": "x"}),
        [("Ignored", "logging.formatter")],
    ),
    "a commit": (document(build={"image": "i", "commit": "x"}), [("Ignored", "build.commit")]),
    "secrets": (
        document(environment={"secret_refs": ["a"]}),
        [("KubernetesOnly", "environment.secret_refs")],
    ),
}


@pytest.mark.parametrize(("parsed", "problem"), ERRORS.values(), ids=ERRORS)
def test_an_error_rejects_the_document_and_is_reported_once(parsed: Parsed, problem: tuple[str, str]) -> None:
    assert messages(parsed) == [problem]
    assert parsed.jobs == ()


@pytest.mark.parametrize("parsed", [parsed for parsed, _ in ERRORS.values()], ids=ERRORS)
def test_an_error_has_its_line(parsed: Parsed) -> None:
    assert all(problem.line > 0 and problem.column > 0 for problem in parsed.problems)


@pytest.mark.parametrize(("parsed", "problems"), WARNINGS.values(), ids=WARNINGS)
def test_a_warning_is_attached_to_the_job(parsed: Parsed, problems: list[tuple[str, str]]) -> None:
    assert messages(parsed) == []
    assert messages(parsed, Severity.WARNING) == problems
    assert parsed.jobs[0].warnings == parsed.problems


def test_an_unknown_parameter_is_reported_with_the_declared_inputs() -> None:
    (problem,) = document(params={"rate": 1, "steps": 2}, run={"cmd": "train {{ rat }}"}).problems
    assert (problem.allowed, problem.fix) == ("rate, steps", "did you mean rate?")


def test_memory_with_a_suffix_is_an_error_that_names_the_unit() -> None:
    (problem,) = document(environment={"resources": {"memory": {"requests": "256Mi"}}}).problems
    assert "MiB" in problem.message
    assert problem.allowed == "256, which is 256 MiB"


def test_all_problems_are_reported_at_once() -> None:
    parsed = document(
        hptuning={},
        backend="external",
        environment={"resources": {"gpu": {"requests": 0.5}}, "replicas": {"n_workers": -1}},
    )
    assert sorted(messages(parsed)) == [
        ("BadQuantity", "environment.resources.gpu.requests"),
        ("NotAllowed", "backend"),
        ("OutOfRange", "environment.replicas.n_workers"),
        ("Required", "environment.replicas"),
        ("Unsupported", "hptuning"),
    ]
