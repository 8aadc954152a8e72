"""Every field of Polyaxon's present schema: known, described, and with the effect that it declares."""

from typing import Any

import pytest
import yaml

from muster_core.models import Job, Severity
from muster_core.models.problem_codes import Code
from muster_formats import Parsed, parse
from muster_formats.polyaxon_v1.fields import V1ComponentFields, V1OperationFields
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
