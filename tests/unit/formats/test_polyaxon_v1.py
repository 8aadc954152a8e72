"""Fields and runs of Polyaxon 1.x: every published field, bounds, modes, clusters."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster_core.models import Job, Severity
from muster_core.models.problem_codes import Code
from muster_formats import Parsed, parse
from muster_formats.polyaxon_v1.fields import V1ComponentFields, V1OperationFields
from muster_formats.polyaxon_v1.roles import JOIN
from muster_formats.polyaxon_v1.run_fields import (
    RUN,
    V1BoundsFields,
    V1ElasticFields,
    V1EnvironmentFields,
    V1InitFields,
    V1RayReplicaFields,
    V1ReplicaFields,
    V1SchedulingFields,
)
from muster_formats.schema import Effect, Table

CONTAINER: dict[str, Any] = {"image": "foo", "command": ["train"]}
JOB: dict[str, Any] = {"kind": "job", "container": CONTAINER}


def component(run: dict[str, Any] | None = None, **fields: Any) -> Parsed:
    return parse(
        yaml.safe_dump(
            {"version": 1.1, "kind": "component", "name": "exp", "run": run or JOB, **fields}, sort_keys=False
        )
    )


def job_of(parsed: Parsed) -> Job:
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    return parsed.jobs[0]


def codes_and_paths(parsed: Parsed) -> list[tuple[str, str]]:
    return [(problem.code, problem.path) for problem in parsed.problems]


PUBLISHED: dict[type[Table], str] = {
    V1OperationFields: """version kind name description tags presets strictParams queue namespace cache termination plugins build hooks
        isApproved cost mount schedule events matrix joins dependencies trigger conditions skipOnUpstreamSkip params hubRef dagRef urlRef
        pathRef component patchStrategy isPreset runPatch template""",
    V1ComponentFields: """version kind name description tags presets strictParams queue namespace cache termination plugins build hooks
        isApproved cost mount inputs outputs run template""",
    V1EnvironmentFields: """labels annotations nodeSelector affinity tolerations nodeName serviceAccountName hostAliases securityContext
        imagePullSecrets hostNetwork hostPID dnsPolicy dnsConfig schedulerName priorityClassName priority restartPolicy""",
    V1InitFields: """artifacts paths git dockerfile file tensorboard lineageRef modelRef artifactRef connection path container""",
    V1ReplicaFields: "replicas environment connections volumes init sidecars container",
    V1RayReplicaFields: """replicas minReplicas maxReplicas rayStartParams environment connections volumes init sidecars container""",
    V1SchedulingFields: "minAvailable queue minResources priorityClass scheduleTimeoutSeconds",
    V1BoundsFields: "minReplicas maxReplicas maxRestarts Metrics",
    V1ElasticFields: """minReplicas maxReplicas rdvzBackend rdvzPort rdvzHost rdvzId rdvzConf standalone nProcPerNode
        maxRestarts Metrics""",
}
PUBLISHED_RUNS = {
    "job": "kind environment connections volumes init sidecars container",
    "service": "kind environment connections volumes init sidecars container ports rewritePath isExternal replicas",
    "tfjob": "kind cleanPodPolicy schedulingPolicy enableDynamicWorker successPolicy chief ps worker evaluator",
    "pytorchjob": "kind cleanPodPolicy schedulingPolicy elasticPolicy nProcPerNode master worker",
    "mpijob": "kind cleanPodPolicy schedulingPolicy slotsPerWorker launcher worker",
    "paddlejob": "kind cleanPodPolicy schedulingPolicy elasticPolicy master worker",
    "xgbjob": "kind cleanPodPolicy schedulingPolicy master worker",
    "mxjob": "kind cleanPodPolicy schedulingPolicy mode scheduler server worker tuner tunerTracker tunerServer",
    "raycluster": """kind entrypoint runtimeEnv metadata rayVersion head workers enableInTreeAutoscaling autoscalerOptions""",
    "daskcluster": "kind worker scheduler minReplicas maxReplicas",
}
PUBLISHED_PARTS = {
    "termination": "maxRetries ttl timeout culling probe podFailurePolicy",
    "plugins": """auth docker shm mountArtifactsStore collectArtifacts collectLogs collectResources syncStatuses autoResume logLevel
        externalHost sidecar notifications""",
    "template": "enabled description fields",
}


def nested(table: type[Table], key: str) -> type[Table]:
    return getattr(table.fields()[key].type, "table")  # noqa: B009


def published() -> list[tuple[type[Table], str]]:
    tables = {nested(V1ComponentFields, key): fields for key, fields in PUBLISHED_PARTS.items()}
    runs = {RUN.tables[kind].table: fields for kind, fields in PUBLISHED_RUNS.items()}
    return [
        (table, field)
        for table, fields in {**PUBLISHED, **tables, **runs}.items()
        for field in fields.split()
    ]


@pytest.mark.parametrize(("table", "key"), published(), ids=lambda one: getattr(one, "__name__", one))
def test_every_published_field_is_known_and_described(table: type[Table], key: str) -> None:
    assert table.allows(key)
    field = table.fields().get(key)
    assert field is None or field.doc


@pytest.mark.parametrize(
    "key", [key for key, field in V1EnvironmentFields.fields().items() if field.effect is Effect.KUBERNETES]
)
def test_kubernetes_only_fields_are_kept_with_a_warning(key: str) -> None:
    values: dict[str, Any] = {"imagePullSecrets": ["a"], "serviceAccountName": "sa"}
    parsed = component({**JOB, "environment": {key: values.get(key, {})}})
    assert key in job_of(parsed).roles[0].template.pod["spec"]
    assert codes_and_paths(parsed) == [(Code.KUBERNETES_ONLY, "run")]


@pytest.mark.parametrize(
    "key", [key for key, field in V1EnvironmentFields.fields().items() if field.effect is Effect.IGNORED]
)
def test_fields_that_muster_decides_are_ignored_with_a_warning(key: str) -> None:
    parsed = component({**JOB, "environment": {key: "x"}})
    assert key not in job_of(parsed).roles[0].template.pod["spec"]
    assert codes_and_paths(parsed) == [(Code.IGNORED, f"run.environment.{key}")]


def test_the_priority_of_a_job_is_the_highest_of_its_replicas() -> None:
    replicas = {
        name: {"container": CONTAINER, "environment": {"priority": priority}}
        for name, priority in (("ps", 3), ("worker", 7))
    }
    assert job_of(component({"kind": "tfjob", **replicas})).priority == 7


def test_a_command_string_is_split_and_an_args_string_is_one_argument() -> None:
    parsed = component(
        {"kind": "job", "container": {"image": "foo", "command": ["sh", "-c"], "args": "train --lr=0.1"}}
    )
    assert job_of(parsed).roles[0].template.args == ("train --lr=0.1",)
    line = component({"kind": "job", "container": {"image": "foo", "command": "train --lr='0 1'"}})
    assert job_of(line).roles[0].template.command == ("train", "--lr=0 1")
    assert codes_and_paths(line) == [("Misspelt", "run.container.command")]


def elastic(policy: dict[str, Any], **fields: Any) -> Parsed:
    return component(
        {
            "kind": "pytorchjob",
            "elasticPolicy": policy,
            "worker": {"replicas": 3, "container": CONTAINER},
            **fields,
        }
    )


@pytest.mark.parametrize(
    ("policy", "bounds"),
    [({"minReplicas": 2, "maxReplicas": 5}, (2, 3, 5)), ({"minReplicas": 3}, (3, 3, 3)), ({}, (3, 3, 3))],
)
def test_workers_stay_between_the_bounds(policy: dict[str, Any], bounds: tuple[int, int, int]) -> None:
    role = job_of(elastic(policy)).roles[0]
    assert (role.min, role.replicas, role.max) == bounds


def test_workers_outside_the_bounds_are_reported_with_the_policy_fields() -> None:
    assert codes_and_paths(elastic({"minReplicas": 2, "maxReplicas": 2})) == [
        ("Conflict", "run.worker.replicas")
    ]
    (problem,) = elastic({"minReplicas": 4, "maxReplicas": 9}).problems
    assert problem.message == "worker.replicas 3 is below minReplicas 4"


def test_both_spellings_of_a_key_are_read_and_not_both_at_once() -> None:
    right, wrong = elastic({"rdzvBackend": "etcd"}), elastic({"rdvzBackend": "etcd"})
    assert job_of(right).options == job_of(wrong).options
    assert (right.problems, codes_and_paths(wrong)) == ((), [("Misspelt", "run.elasticPolicy.rdvzBackend")])
    twice = elastic({"rdvzId": "a", "rdzvId": "a"})
    assert codes_and_paths(twice) == [("Conflict", "run.elasticPolicy.rdvzId")]


def test_processes_given_twice_are_a_conflict() -> None:
    assert job_of(elastic({"nProcPerNode": 4})).options.processes == "4"
    assert job_of(elastic({"nProcPerNode": 4}, nProcPerNode="4")).options.processes == "4"
    assert codes_and_paths(elastic({"nProcPerNode": 4}, nProcPerNode="gpu")) == [
        ("Conflict", "run.elasticPolicy.nProcPerNode")
    ]
    assert codes_and_paths(elastic({}, nProcPerNode="many")) == [("NotAllowed", "run.nProcPerNode")]


def test_min_available_is_for_frameworks_that_can_start_with_fewer_workers() -> None:
    run: dict[str, Any] = {
        "schedulingPolicy": {"minAvailable": 2},
        "worker": {"replicas": 4, "container": CONTAINER},
    }
    assert job_of(component({"kind": "tfjob", **run})).roles[0].min == 2
    rigid = component({"kind": "pytorchjob", **run})
    assert job_of(rigid).roles[0].min == 4
    assert codes_and_paths(rigid) == [("Ignored", "run.schedulingPolicy.minAvailable")]


def test_tuner_roles_require_the_tuning_mode() -> None:
    replica = {"container": CONTAINER}
    run: dict[str, Any] = {"kind": "mxjob", "tunerTracker": replica, "tunerServer": replica, "tuner": replica}
    assert [role.name for role in job_of(component({**run, "mode": "MXTune"})).roles] == [
        "tunertracker",
        "tunerserver",
        "tuner",
    ]
    assert codes_and_paths(component(run)) == [
        ("Conflict", "run.tunerTracker"),
        ("Conflict", "run.tunerServer"),
        ("Conflict", "run.tuner"),
    ]


def test_an_elastic_run_has_workers() -> None:
    run = {"kind": "pytorchjob", "elasticPolicy": {"minReplicas": 1}, "master": {"container": CONTAINER}}
    assert codes_and_paths(component(run)) == [("Required", "run.worker")]


# Clusters


def test_a_cluster_replica_finds_the_head_by_the_membership_file(tmp_path: Path) -> None:
    members = tmp_path / "members.json"
    members.write_text(json.dumps({"generation": 1, "members": {"head": {"0": "10.0.0.1:6379"}}}))
    words = [sys.executable, "-c", JOIN, "head", "echo", "--address=@ADDRESS@", "tcp://@ADDRESS@", "end"]
    ran = subprocess.run(
        words,
        env={**os.environ, "MUSTER_MEMBERS": str(members)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == "--address=10.0.0.1:6379 tcp://10.0.0.1:6379 end\n"


def test_a_cluster_runs_its_own_commands() -> None:
    run = {
        "kind": "raycluster",
        "head": {"container": CONTAINER, "rayStartParams": {"port": "1", "block": "true"}},
    }
    parsed = component(run)
    assert codes_and_paths(parsed) == [
        (Code.UNSUPPORTED, "run.head.container.command"),
        (Code.IGNORED, "run.head.rayStartParams.port"),
        (Code.IGNORED, "run.head.rayStartParams.block"),
    ]


def test_a_worker_group_cannot_have_the_name_of_the_head() -> None:
    replica = {"container": {"image": "ray"}}
    parsed = component({"kind": "raycluster", "head": replica, "workers": {"head": replica}})
    assert codes_and_paths(parsed) == [(Code.DUPLICATE, "run.workers.head")]
