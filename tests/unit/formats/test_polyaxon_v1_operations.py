"""Operations over components: merged fields, rejected fields, and the locations of problems."""

from typing import Any

import pytest
import yaml

from muster_core.models import CleanPodPolicy, Job, RestartPolicy, Severity
from muster_core.models.problem_codes import Code
from muster_formats import Parsed, parse

CONTAINER: dict[str, Any] = {"image": "foo", "command": ["train"]}
JOB: dict[str, Any] = {"kind": "job", "container": CONTAINER}


def component(run: dict[str, Any] | None = None, **fields: Any) -> Parsed:
    return parse(
        yaml.safe_dump(
            {"version": 1.1, "kind": "component", "name": "exp", "run": run or JOB, **fields}, sort_keys=False
        )
    )


def operation(inner: dict[str, Any] | None = None, **fields: Any) -> Parsed:
    document = {
        "version": 1.1,
        "kind": "operation",
        "component": inner or {"name": "exp", "run": JOB},
        **fields,
    }
    return parse(yaml.safe_dump(document, sort_keys=False))


def job_of(parsed: Parsed) -> Job:
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return parsed.jobs[0]


def codes_and_paths(parsed: Parsed) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in parsed.problems]


# An operation over its component


def test_the_operation_overrides_its_component() -> None:
    inner = {"name": "one", "queue": "a", "tags": ["x"], "termination": {"timeout": 9, "ttl": 3}, "run": JOB}
    job = job_of(operation(inner, name="two", queue="b", tags=["y"], termination={"timeout": 7}))
    assert (job.name, job.queue, job.annotations) == ("two", "b", {"polyaxon.com/tags": "x,y"})
    assert (job.run.active_deadline_s, job.run.ttl_s) == (7, 3)


@pytest.mark.parametrize(
    ("strategy", "selector", "args", "tolerated"),
    [
        ("post_merge", {"a": "2", "b": "1", "c": "2"}, ("new",), ["old", "new"]),
        ("pre_merge", {"a": "1", "b": "1", "c": "2"}, ("old",), ["new", "old"]),
        ("replace", {"a": "2", "c": "2"}, ("new",), ["new"]),
        ("isnull", {"a": "1", "b": "1"}, ("old",), ["old"]),
    ],
)
def test_a_run_patch_is_merged_by_its_strategy(
    strategy: str, selector: dict[str, str], args: tuple[str, ...], tolerated: list[str]
) -> None:
    run = {
        "kind": "job",
        "environment": {
            "nodeSelector": {"a": "1", "b": "1"},
            "tolerations": [{"key": "old", "operator": "Exists"}],
        },
        "container": {"image": "foo", "args": ["old"]},
    }
    patch = {
        "environment": {
            "nodeSelector": {"a": "2", "c": "2"},
            "tolerations": [{"key": "new", "operator": "Exists"}],
        },
        "container": {"args": ["new"], "image": "foo"},
    }
    parsed = operation({"name": "exp", "run": run}, patchStrategy=strategy, runPatch=patch)
    template = job_of(parsed).roles[0].template
    assert (template.node_selector, template.args) == (selector, args)
    assert [one.key for one in template.tolerations] == tolerated


def test_a_replica_patch_applies_to_every_replica_of_a_distributed_run() -> None:
    run = {"kind": "tfjob", "ps": {"container": CONTAINER}, "worker": {"replicas": 2, "container": CONTAINER}}
    patch = {"environment": {"nodeSelector": {"pool": "gpu"}}}
    job = job_of(operation({"name": "exp", "run": run}, runPatch=patch))
    assert [role.template.node_selector for role in job.roles] == [{"pool": "gpu"}, {"pool": "gpu"}]


def test_a_patch_of_a_distributed_run_names_its_replicas() -> None:
    run = {"kind": "tfjob", "worker": {"replicas": 2, "container": CONTAINER}}
    patch = {"worker": {"replicas": 5}, "cleanPodPolicy": "Running"}
    job = job_of(operation({"name": "exp", "run": run}, runPatch=patch))
    assert (job.roles[0].replicas, job.run.clean_pod_policy) == (5, CleanPodPolicy.RUNNING)


def test_a_problem_of_a_patch_is_reported_in_the_patch() -> None:
    patch = {"container": {"resources": {"limits": {"memory": "lots"}}}, "replicas": 3}
    assert codes_and_paths(operation(runPatch=patch)) == [
        ("BadQuantity", "runPatch.container.resources.limits.memory"),
        ("UnknownField", "runPatch.replicas"),
    ]


def test_a_problem_of_a_run_has_the_field_names_of_the_document() -> None:
    run: dict[str, Any] = {
        "kind": "job",
        "environment": {"nodeSelector": {"a": "b c"}},
        "sidecars": [{"name": "side", "image": "x", "comand": []}],
        "init": [{"container": {"image": 3}}],
        "container": {"comand": ["x"]},
    }
    parsed = component(run)
    errors = [problem for problem in parsed.problems if problem.severity is Severity.ERROR]
    assert {problem.path for problem in errors} == {
        "run.environment.nodeSelector.a",
        "run.sidecars[0].comand",
        "run.init[0].container.image",
        "run.container.comand",
        "run.container.image",
    }
    assert any(problem.message.startswith("container has no field") for problem in errors)


# Names, queues, ends


@pytest.mark.parametrize(
    ("name", "called", "warned"),
    [
        ("exp", "exp", False),
        ("acme/exp:v1", "exp", False),
        ("My_Model", "my-model", True),
        ("exp.2024", "exp-2024", True),
    ],
)
def test_a_slug_becomes_a_name(name: str, called: str, warned: bool) -> None:
    parsed = component(name=name)
    assert job_of(parsed).name == called
    assert codes_and_paths(parsed) == ([("BadName", "name")] if warned else [])


def test_a_document_without_a_name_takes_the_one_that_comes_with_it() -> None:
    text = yaml.safe_dump({"version": 1.1, "kind": "component", "run": JOB})
    assert parse(text, name="My Run").jobs[0].name == "my-run"
    assert codes_and_paths(parse(text)) == [("Required", "name")]


def test_an_agent_is_left_out_of_the_queue_with_a_warning() -> None:
    parsed = component(queue="agent/gpu")
    assert job_of(parsed).queue == "gpu"
    assert codes_and_paths(parsed) == [("Ignored", "queue")]


def test_the_queue_of_the_operation_overrides_the_scheduling_policy() -> None:
    run = {"kind": "mpijob", "launcher": {"container": CONTAINER}, "schedulingPolicy": {"queue": "b"}}
    parsed = component(run, queue="a")
    assert job_of(parsed).queue == "a"
    assert codes_and_paths(parsed) == [("Ignored", "run.schedulingPolicy.queue")]


@pytest.mark.parametrize(
    ("run", "retries", "policy_name", "policy"),
    [
        (JOB, None, None, RestartPolicy.NEVER),
        (JOB, 0, "OnFailure", RestartPolicy.ON_FAILURE),
        (JOB, 2, None, RestartPolicy.ON_FAILURE),
        (JOB, 2, "Never", RestartPolicy.ON_FAILURE),
        (JOB, 2, "Always", RestartPolicy.ALWAYS),
        ({**JOB, "kind": "service"}, None, None, RestartPolicy.ALWAYS),
        ({**JOB, "kind": "service"}, 3, "OnFailure", RestartPolicy.ON_FAILURE),
        ({"kind": "tfjob"}, None, None, RestartPolicy.NEVER),
        ({"kind": "tfjob"}, 2, None, RestartPolicy.ON_FAILURE),
        ({"kind": "tfjob"}, 2, "Never", RestartPolicy.NEVER),
    ],
)
def test_the_restart_policy_follows_the_termination_section(
    run: dict[str, Any], retries: int | None, policy_name: str | None, policy: RestartPolicy
) -> None:
    environment = {"environment": {"restartPolicy": policy_name}} if policy_name else {}
    whole = (
        {**run, "worker": {"container": CONTAINER, **environment}}
        if run["kind"] == "tfjob"
        else {**run, **environment}
    )
    job = job_of(component(whole, termination={} if retries is None else {"maxRetries": retries}))
    assert job.roles[0].restart_policy is policy


def test_the_back_off_limit_is_zero_by_default() -> None:
    assert job_of(component()).run.backoff_limit == 0


@pytest.mark.parametrize(("ttl", "clean"), [(None, CleanPodPolicy.ALL), (60, CleanPodPolicy.RUNNING)])
def test_replicas_are_removed_at_once_unless_a_ttl_keeps_them(ttl: int | None, clean: CleanPodPolicy) -> None:
    assert job_of(component(termination={"ttl": ttl})).run.clean_pod_policy is clean


def test_a_run_that_waits_for_approval_is_suspended() -> None:
    assert job_of(component(isApproved=False)).run.suspend
    assert not job_of(component(isApproved=True)).run.suspend


def test_the_namespace_is_the_documents_else_the_submissions() -> None:
    text = yaml.safe_dump({"version": 1.1, "kind": "component", "name": "exp", "run": JOB})
    assert parse(text, namespace="team").jobs[0].namespace == "team"
    assert job_of(component(namespace="mine")).namespace == "mine"


# What cannot be followed

MANAGED = [
    "matrix",
    "joins",
    "schedule",
    "events",
    "dependencies",
    "trigger",
    "conditions",
    "skipOnUpstreamSkip",
    "parallel",
    "dagRef",
]
SHARED = ["presets", "cache", "hooks", "actions"]


@pytest.mark.parametrize("key", [*MANAGED, *SHARED])
def test_tuning_and_pipelines_are_rejected_with_the_reason(key: str) -> None:
    fields: dict[str, Any] = {key: "x"}
    (problem,) = operation(None, **fields).problems
    assert (problem.code, problem.path) == (Code.UNSUPPORTED, key)
    assert "belongs to an experiment manager, not to a scheduler" in problem.message


@pytest.mark.parametrize("key", ["hubRef", "pathRef", "urlRef"])
def test_a_component_reference_is_rejected_once(key: str) -> None:
    document = {"version": 1.1, "kind": "operation", "name": "exp", key: "kaniko:v1"}
    (problem,) = parse(yaml.safe_dump(document)).problems
    assert (problem.code, problem.path) == (Code.UNSUPPORTED, key)
    assert problem.fix.startswith("write the component here")


def test_an_operation_without_a_component_is_an_error() -> None:
    assert codes_and_paths(parse("{version: 1.1, kind: operation, name: exp}")) == [("Required", "component")]


def test_a_component_without_a_run_is_an_error() -> None:
    assert codes_and_paths(parse("{version: 1.1, kind: component, name: exp}")) == [("Required", "run")]


@pytest.mark.parametrize("kind", ["sparkjob", "rayjob", "daskjob", "dag", "notifier", "cleaner", "tuner"])
def test_an_unsupported_kind_of_run_is_rejected_with_the_reason(kind: str) -> None:
    (problem,) = component({"kind": kind, "whatever": 1}).problems
    assert (problem.code, problem.path) == (Code.UNSUPPORTED, "run.kind")


def test_a_misspelt_kind_of_run_suggests_the_nearest() -> None:
    (problem,) = component({"kind": "pytorch-job"}).problems
    assert (problem.code, problem.fix) == (Code.NOT_ALLOWED, "did you mean pytorchjob?")


@pytest.mark.parametrize(
    "key",
    [
        "artifacts",
        "paths",
        "git",
        "dockerfile",
        "file",
        "tensorboard",
        "lineageRef",
        "modelRef",
        "artifactRef",
        "connection",
    ],
)
def test_fields_for_polyaxons_own_containers_are_rejected(key: str) -> None:
    parsed = component({**JOB, "init": [{key: {}}]})
    assert codes_and_paths(parsed) == [(Code.UNSUPPORTED, f"run.init[0].{key}")]


def test_a_template_is_rejected_with_its_open_fields() -> None:
    (problem,) = component(
        template={"enabled": True, "description": "no data", "fields": ["run.volumes"]}
    ).problems
    assert (problem.code, problem.path) == (Code.UNSUPPORTED, "template")
    assert "no data" in problem.message
    assert "run.volumes" in problem.fix
    assert component(template={"enabled": False}).problems == ()


def test_a_preset_is_rejected() -> None:
    assert codes_and_paths(operation(isPreset=True)) == [(Code.UNSUPPORTED, "isPreset")]


@pytest.mark.parametrize(
    "run",
    [
        {"kind": "job"},
        {"kind": "tfjob"},
        {"kind": "tfjob", "worker": {}},
        {"kind": "raycluster"},
        {"kind": "daskcluster"},
    ],
)
def test_a_distributed_run_without_replicas_is_an_error(run: dict[str, Any]) -> None:
    assert {problem.code for problem in component(run).problems} == {Code.REQUIRED}
