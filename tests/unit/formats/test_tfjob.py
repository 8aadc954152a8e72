"""TFJob in both layouts."""

from typing import Any

import pytest
import yaml

from muster_core.models import (
    CleanPodPolicy,
    Framework,
    Job,
    Port,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    Severity,
    SuccessPolicy,
    Template,
)
from muster_formats import Parsed, parse

GI = 2**30
COMMAND = ("/bin/bash", "-c", "python3 train.py")


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "tensorflow", "image": "tf", **fields}


def replica(count: int | None = None, *, pod: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    given = {} if count is None else {"replicas": count}
    return {**given, "template": {"spec": {"containers": [container()], **(pod or {})}}, **fields}


def tfjob(spec: dict[str, Any] | None = None, **metadata: Any) -> Parsed:
    """A TFJob of two workers, with this in its spec and metadata."""
    document = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "mnist", **metadata},
        "spec": {"tfReplicaSpecs": {"Worker": replica(2)}, **(spec or {})},
    }
    return parse(yaml.safe_dump(document))


def specs(**types: Any) -> dict[str, Any]:
    """A spec of these replica types."""
    return {"tfReplicaSpecs": types}


def good(parsed: Parsed) -> Job:
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return parsed.jobs[0]


def problems_of(parsed: Parsed) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in parsed.problems]


def worker_of(parsed: Parsed) -> Role:
    worker = good(parsed).role("worker")
    assert worker
    return worker


SAMPLE = """
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: job1
  annotations:
    "DRAGON_KUBESHARE": "true"
spec:
  max-instances: 4
  min-instances: 1
  cleanPodPolicy: "All"
  tfReplicaSpecs:
    PS:
      replicas: 1
      restartPolicy: OnFailure
      template:
        spec:
          terminationGracePeriodSeconds: 0
          containers:
          - name: tensorflow
            image: tensorflow/tensorflow:1.15.0-py3
            command: ["/bin/bash", "-c", "python3 train.py"]
            ports:
            - containerPort: 2222
              name: tfjob-port
            resources:
              limits:
                cpu: "4"
                memory: "8Gi"
    Worker:
      replicas: 4
      restartPolicy: OnFailure
      template:
        metadata:
          annotations:
            "kubeshare/gpu_request": "0.5"
            "kubeshare/gpu_limit": "1.0"
            "kubeshare/gpu_mem": "3189243904"
        spec:
          terminationGracePeriodSeconds: 0
          containers:
          - name: tensorflow
            image: tensorflow/tensorflow:1.15.0-gpu-py3
            command: ["/bin/bash", "-c", "python3 train.py"]
            env:
            - name: "global_steps"
              value: "100000"
            resources:
              limits:
                cpu: "4"
                memory: "8Gi"
"""


def test_a_job_in_dragon_s_layout_with_gpu_shares_is_read() -> None:
    parsed = parse(SAMPLE)
    assert parsed.problems == ()
    (job,) = parsed.jobs
    cpu_and_memory = Resources(cpu=4000, memory=8 * GI)
    pods = [role.template.pod for role in job.roles]
    assert job == Job(
        name="job1",
        annotations={"DRAGON_KUBESHARE": "true"},
        framework=Framework.TENSORFLOW,
        format="tfjob",
        run=RunPolicy(clean_pod_policy=CleanPodPolicy.ALL),
        roles=(
            Role(
                name="ps",
                replicas=1,
                min=1,
                max=1,
                restart_policy=RestartPolicy.ON_FAILURE,
                template=Template(
                    image="tensorflow/tensorflow:1.15.0-py3",
                    command=COMMAND,
                    requests=cpu_and_memory,
                    limits=cpu_and_memory,
                    ports=(Port(name="tfjob-port", number=2222),),
                    grace_s=0,
                    pod=pods[0],
                ),
            ),
            Role(
                name="worker",
                replicas=4,
                min=1,
                max=4,
                restart_policy=RestartPolicy.ON_FAILURE,
                template=Template(
                    image="tensorflow/tensorflow:1.15.0-gpu-py3",
                    command=COMMAND,
                    env={"global_steps": "100000"},
                    requests=Resources(cpu=4000, memory=8 * GI, gpu=500, gpu_memory=3_189_243_904),
                    limits=Resources(cpu=4000, memory=8 * GI, gpu=1000, gpu_memory=3_189_243_904),
                    ports=(Port(name="tfjob-port", number=2222),),
                    annotations={
                        "kubeshare/gpu_request": "0.5",
                        "kubeshare/gpu_limit": "1.0",
                        "kubeshare/gpu_mem": "3189243904",
                    },
                    grace_s=0,
                    pod=pods[1],
                ),
            ),
        ),
    )


def test_the_raw_template_is_kept_with_the_framework_s_port() -> None:
    pod = parse(SAMPLE).jobs[0].roles[1].template.pod
    assert pod["spec"]["containers"][0]["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    assert pod["metadata"]["annotations"]["kubeshare/gpu_mem"] == "3189243904"


@pytest.mark.parametrize(
    ("given", "counts"),
    [
        ({}, (2, 2, 2)),
        ({"min-instances": 1}, (1, 2, 2)),
        ({"max-instances": 4}, (2, 2, 4)),
        ({"min-instances": 1, "max-instances": 4}, (1, 2, 4)),
        ({"schedulingPolicy": {"minAvailable": 1}}, (1, 2, 2)),
        ({"schedulingPolicy": {"minAvailable": 2}}, (2, 2, 2)),
    ],
)
def test_a_missing_bound_is_the_number_of_workers(given: dict[str, Any], counts: tuple[int, ...]) -> None:
    worker = worker_of(tfjob(given))
    assert (worker.min, worker.replicas, worker.max) == counts


def test_workers_without_a_count_start_with_the_minimum() -> None:
    assert worker_of(tfjob({**specs(Worker=replica()), "min-instances": 3, "max-instances": 5})).replicas == 3
    assert worker_of(tfjob(specs(Worker=replica()))).replicas == 1


def test_min_available_minus_the_other_replicas_is_the_workers_minimum() -> None:
    job = good(tfjob({**specs(PS=replica(2), Worker=replica(4)), "schedulingPolicy": {"minAvailable": 3}}))
    assert job.min_available == 3
    assert [(role.name, role.min, role.replicas) for role in job.roles] == [("ps", 2, 2), ("worker", 1, 4)]


POLICY: dict[str, Any] = {
    "cleanPodPolicy": "All",
    "ttlSecondsAfterFinished": 60,
    "activeDeadlineSeconds": 3600,
    "backoffLimit": 5,
    "suspend": True,
    "schedulingPolicy": {"minAvailable": 2, "queue": "research", "scheduleTimeoutSeconds": 120},
}


@pytest.mark.parametrize("spec", [POLICY, {"runPolicy": POLICY}], ids=["under spec", "under runPolicy"])
def test_the_run_policy_is_read_in_either_place(spec: dict[str, Any]) -> None:
    job = good(tfjob({"successPolicy": "AllWorkers", **spec}))
    assert (job.queue, job.min_available) == ("research", 2)
    assert job.run == RunPolicy(
        clean_pod_policy=CleanPodPolicy.ALL,
        ttl_s=60,
        active_deadline_s=3600,
        backoff_limit=5,
        suspend=True,
        queue_deadline_s=120,
        success_policy=SuccessPolicy.ALL_WORKERS,
    )


def test_the_same_policy_in_both_places_is_a_conflict() -> None:
    parsed = tfjob({"backoffLimit": 1, "runPolicy": {"backoffLimit": 2}})
    assert problems_of(parsed) == [("Conflict", "spec.runPolicy.backoffLimit")]


def test_pods_are_kept_by_default_except_in_dragon_s_layout() -> None:
    assert good(tfjob()).run.clean_pod_policy is CleanPodPolicy.NONE
    assert good(tfjob({"max-instances": 2})).run.clean_pod_policy is CleanPodPolicy.RUNNING


def test_replicas_are_not_restarted_by_default() -> None:
    assert worker_of(tfjob()).restart_policy is RestartPolicy.NEVER


def test_replica_types_are_known_in_any_letter_case() -> None:
    job = good(tfjob(specs(ps=replica(), WORKER=replica(2), chief=replica(), evaluator=replica())))
    assert {role.name for role in job.roles} == {"ps", "worker", "chief", "evaluator"}


REJECTED: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "two spellings": (
        {"tfReplicaSpecs": {"PS": replica(), "ps": replica()}},
        ("DuplicateKey", "spec.tfReplicaSpecs.ps"),
    ),
    "an unknown type": (
        {"tfReplicaSpecs": {"Wroker": replica()}},
        ("UnknownField", "spec.tfReplicaSpecs.Wroker"),
    ),
    "two chiefs": (
        {"tfReplicaSpecs": {"Chief": replica(2)}},
        ("OutOfRange", "spec.tfReplicaSpecs.Chief.replicas"),
    ),
    "chief and master": (
        {"tfReplicaSpecs": {"Chief": replica(), "Master": replica()}},
        ("Conflict", "spec.tfReplicaSpecs.Master"),
    ),
    "two evaluators": (
        {"tfReplicaSpecs": {"Worker": replica(), "Evaluator": replica(2)}},
        ("OutOfRange", "spec.tfReplicaSpecs.Evaluator.replicas"),
    ),
    "no replica": ({"tfReplicaSpecs": {"Worker": replica(0)}}, ("NothingToRun", "spec.tfReplicaSpecs")),
    "no template": (
        {"tfReplicaSpecs": {"Worker": {"replicas": 1}}},
        ("Required", "spec.tfReplicaSpecs.Worker.template"),
    ),
    "no image": (
        {"tfReplicaSpecs": {"Worker": replica(pod={"containers": [{"name": "tensorflow"}]})}},
        ("Required", "spec.tfReplicaSpecs.Worker.template.spec.containers[0].image"),
    ),
    "more than the maximum": ({"max-instances": 1}, ("Conflict", "spec.tfReplicaSpecs.Worker.replicas")),
    "less than the minimum": (
        {"min-instances": 3, "max-instances": 4},
        ("Conflict", "spec.tfReplicaSpecs.Worker.replicas"),
    ),
    "a minimum above the maximum": (
        {"min-instances": 4, "max-instances": 2},
        ("Conflict", "spec.min-instances"),
    ),
    "a minimum above all": (
        {"runPolicy": {"schedulingPolicy": {"minAvailable": 3}}},
        ("Conflict", "spec.runPolicy.schedulingPolicy.minAvailable"),
    ),
    "a bad restart policy": (
        {"tfReplicaSpecs": {"Worker": replica(restartPolicy="Sometimes")}},
        ("NotAllowed", "spec.tfReplicaSpecs.Worker.restartPolicy"),
    ),
    "a deadline of 0": ({"activeDeadlineSeconds": 0}, ("OutOfRange", "spec.activeDeadlineSeconds")),
    "no replica types": ({"tfReplicaSpecs": {}}, ("Required", "spec.tfReplicaSpecs")),
}


@pytest.mark.parametrize(("given", "expected"), REJECTED.values(), ids=REJECTED)
def test_an_error_is_reported_at_its_path(given: dict[str, Any], expected: tuple[str, str]) -> None:
    parsed = tfjob(given)
    assert parsed.jobs == ()
    assert [(p.code, p.path) for p in parsed.problems if p.severity is Severity.ERROR] == [expected]


def test_a_conflict_of_bounds_names_the_document_s_fields() -> None:
    (problem,) = tfjob({"max-instances": 1}).problems
    assert problem.message == "Worker.replicas 2 is above max-instances 1"
    assert problem.fix == "lower Worker.replicas to 1 or raise max-instances to 2"


IGNORED: dict[str, tuple[dict[str, Any], str]] = {
    "managedBy": ({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}}, "spec.runPolicy.managedBy"),
    "minResources": (
        {"schedulingPolicy": {"minResources": {"cpu": 3}}},
        "spec.schedulingPolicy.minResources",
    ),
    "priorityClass": ({"schedulingPolicy": {"priorityClass": "high"}}, "spec.schedulingPolicy.priorityClass"),
    "max-instances": ({"tfReplicaSpecs": {"Chief": replica()}, "max-instances": 4}, "spec.max-instances"),
}


@pytest.mark.parametrize(("given", "path"), IGNORED.values(), ids=IGNORED)
def test_a_field_without_effect_is_a_warning_kept_on_the_job(given: dict[str, Any], path: str) -> None:
    parsed = tfjob(given)
    assert problems_of(parsed) == [("Ignored", path)]
    assert parsed.jobs[0].warnings == parsed.problems


def test_a_generated_name_is_rejected() -> None:
    (warning,) = tfjob(generateName="a-").problems
    assert (warning.code, warning.path) == ("Ignored", "metadata.generateName")
    problems = tfjob(name=None, generateName="a-").problems
    expected = ("Required", "metadata.name", "add name; Muster does not generate names")
    assert expected in [(problem.code, problem.path, problem.fix) for problem in problems]


def test_metadata_set_by_a_server_has_no_effect() -> None:
    document = yaml.safe_load(SAMPLE)
    document["metadata"]["uid"] = "x"
    document["status"] = {"conditions": []}
    parsed = parse(yaml.safe_dump(document))
    assert set(problems_of(parsed)) == {("Ignored", "metadata.uid"), ("Ignored", "status")}
    assert len(parsed.jobs) == 1
