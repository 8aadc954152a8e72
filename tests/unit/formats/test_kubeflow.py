"""Kubeflow's kinds: what they have in common, and what differs."""

from typing import Any

import pytest
import yaml

from muster_core.models import CleanPodPolicy, Job, Rendezvous, RestartPolicy, Severity
from muster_formats import Parsed, parse

KINDS = {
    "TFJob": ("tfReplicaSpecs", "tensorflow", ("Chief", "Worker")),
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", ("Master", "Worker")),
    "MPIJob": ("mpiReplicaSpecs", "mpi", ("Launcher", "Worker")),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", ("Master", "Worker")),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", ("Master", "Worker")),
    "JAXJob": ("jaxReplicaSpecs", "jax", ("Worker",)),
    "MXJob": ("mxReplicaSpecs", "mxnet", ("Scheduler", "Worker")),
}


def replica(container: str, count: int | None = 1, **fields: Any) -> dict[str, Any]:
    given = {} if count is None else {"replicas": count}
    return {**given, "template": {"spec": {"containers": [{"name": container, "image": "x"}]}}, **fields}


def document(
    kind: str, types: dict[str, Any] | None = None, *, version: str = "kubeflow.org/v1", **spec: Any
) -> dict[str, Any]:
    """A document of the kind with one replica of each of its types, or with these types."""
    key, container, names = KINDS[kind]
    replicas = {name: replica(container) for name in names} if types is None else types
    mode = {"jobMode": "MXTrain"} if kind == "MXJob" else {}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "small"},
        "spec": {**mode, key: replicas, **spec},
    }


def parsed(kind: str, types: dict[str, Any] | None = None, **spec: Any) -> Parsed:
    return parse(yaml.safe_dump(document(kind, types, **spec)))


def errors(parsed: Parsed) -> list[tuple[str, str]]:
    return [(p.code, p.path) for p in parsed.problems if p.severity is Severity.ERROR]


def warnings(parsed: Parsed) -> list[tuple[str, str]]:
    return [(p.code, p.path) for p in parsed.problems if p.severity is Severity.WARNING]


def job_of(parsed: Parsed) -> Job:
    assert errors(parsed) == []
    return parsed.jobs[0]


def torch(count: int | None = 2) -> dict[str, Any]:
    return {"Worker": replica("pytorch", count)}


@pytest.mark.parametrize("kind", KINDS)
def test_a_minimal_document_of_each_kind_has_no_problems(kind: str) -> None:
    read = parsed(kind)
    assert read.problems == ()
    job = read.jobs[0]
    assert (job.format, job.run.clean_pod_policy) == (kind.lower(), CleanPodPolicy.NONE)
    assert [role.name for role in job.roles] == [name.lower() for name in KINDS[kind][2]]


RESTARTS = {
    "TFJob": RestartPolicy.NEVER,
    "PyTorchJob": RestartPolicy.ON_FAILURE,
    "MPIJob": RestartPolicy.NEVER,
    "XGBoostJob": RestartPolicy.NEVER,
    "PaddleJob": RestartPolicy.ON_FAILURE,
    "JAXJob": RestartPolicy.NEVER,
    "MXJob": RestartPolicy.NEVER,
}


@pytest.mark.parametrize(("kind", "policy"), RESTARTS.items(), ids=RESTARTS)
def test_each_kind_has_a_restart_policy_of_its_own(kind: str, policy: RestartPolicy) -> None:
    assert {role.restart_policy for role in job_of(parsed(kind)).roles} == {policy}


PORTS = {
    "TFJob": ("tfjob-port", 2222),
    "PyTorchJob": ("pytorchjob-port", 23456),
    "XGBoostJob": ("xgboostjob-port", 9999),
    "PaddleJob": ("master", 36543),
    "JAXJob": ("jaxjob-port", 6666),
    "MXJob": ("mxjob-port", 9091),
}


@pytest.mark.parametrize(("kind", "port"), PORTS.items(), ids=PORTS)
def test_replicas_of_each_kind_have_its_port(kind: str, port: tuple[str, int]) -> None:
    job = job_of(parsed(kind))
    assert [[(p.name, p.number) for p in role.template.ports] for role in job.roles] == [[port]] * len(
        job.roles
    )


def test_mpi_needs_no_port_and_any_container() -> None:
    types = {"Launcher": replica("first"), "Worker": replica("second", 2)}
    assert [role.template.ports for role in job_of(parsed("MPIJob", types)).roles] == [(), ()]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "MPIJob"])
def test_a_container_of_the_framework_s_name_must_exist(kind: str) -> None:
    key, _, names = KINDS[kind]
    read = parsed(kind, {name: replica("trainer") for name in names})
    expected = [("Required", f"spec.{key}.{name}.template.spec.containers[0].name") for name in names]
    assert errors(read) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_replica_types_are_known_in_any_letter_case_and_others_are_not(kind: str) -> None:
    key, container, names = KINDS[kind]
    shouted = {name.upper(): replica(container) for name in names}
    assert [role.name for role in job_of(parsed(kind, shouted)).roles] == [name.lower() for name in names]
    read = parsed(kind, {**shouted, "Helper": replica(container)})
    assert errors(read) == [("UnknownField", f"spec.{key}.Helper")]


@pytest.mark.parametrize("kind", KINDS)
def test_the_run_policy_is_read(kind: str) -> None:
    policy = {
        "backoffLimit": 7,
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 5,
        "cleanPodPolicy": "All",
        "schedulingPolicy": {"queue": "research", "scheduleTimeoutSeconds": 30},
    }
    job = job_of(parsed(kind, runPolicy=policy))
    run = job.run
    assert (run.backoff_limit, run.active_deadline_s, run.ttl_s, run.queue_deadline_s) == (7, 60, 5, 30)
    assert (run.clean_pod_policy, job.queue) == (CleanPodPolicy.ALL, "research")


BAD: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any], tuple[str, str]]] = {
    "two masters": (
        "PyTorchJob",
        {"Master": replica("pytorch", 2)},
        {},
        ("OutOfRange", "spec.pytorchReplicaSpecs.Master.replicas"),
    ),
    "a master that is none": (
        "PyTorchJob",
        {"Master": replica("pytorch", 0), **torch()},
        {},
        ("OutOfRange", "spec.pytorchReplicaSpecs.Master.replicas"),
    ),
    "elastic without workers": (
        "PyTorchJob",
        {"Master": replica("pytorch")},
        {"elasticPolicy": {"maxReplicas": 2}},
        ("Required", "spec.elasticPolicy"),
    ),
    "more workers than elastic allows": (
        "PyTorchJob",
        torch(4),
        {"elasticPolicy": {"maxReplicas": 2}},
        ("Conflict", "spec.pytorchReplicaSpecs.Worker.replicas"),
    ),
    "bounds the wrong way round": (
        "PyTorchJob",
        torch(2),
        {"elasticPolicy": {"minReplicas": 4, "maxReplicas": 2}},
        ("Conflict", "spec.elasticPolicy.minReplicas"),
    ),
    "an unknown backend": (
        "PyTorchJob",
        torch(),
        {"elasticPolicy": {"rdzvBackend": "zookeeper"}},
        ("NotAllowed", "spec.elasticPolicy.rdzvBackend"),
    ),
    "a setting without a key": (
        "PyTorchJob",
        torch(),
        {"elasticPolicy": {"rdzvConf": [{"value": "1"}]}},
        ("Required", "spec.elasticPolicy.rdzvConf[0].key"),
    ),
    "processes in words": ("PyTorchJob", None, {"nprocPerNode": "many"}, ("NotAllowed", "spec.nprocPerNode")),
    "processes by both names": (
        "PyTorchJob",
        torch(),
        {"nprocPerNode": 2, "elasticPolicy": {"nProcPerNode": 2}},
        ("Conflict", "spec.elasticPolicy.nProcPerNode"),
    ),
    "no launcher": ("MPIJob", {"Worker": replica("a", 2)}, {}, ("Required", "spec.mpiReplicaSpecs")),
    "two launchers": (
        "MPIJob",
        {"Launcher": replica("a", 2)},
        {},
        ("OutOfRange", "spec.mpiReplicaSpecs.Launcher.replicas"),
    ),
    "no slots": ("MPIJob", None, {"slotsPerWorker": 0}, ("OutOfRange", "spec.slotsPerWorker")),
    "clean-up in both places": (
        "MPIJob",
        None,
        {"cleanPodPolicy": "All", "runPolicy": {"cleanPodPolicy": "None"}},
        ("Conflict", "spec.runPolicy.cleanPodPolicy"),
    ),
    "a field of the other version": (
        "MPIJob",
        None,
        {"mpiImplementation": "OpenMPI"},
        ("UnknownField", "spec.mpiImplementation"),
    ),
    "no master of xgboost": (
        "XGBoostJob",
        {"Worker": replica("xgboost")},
        {},
        ("Required", "spec.xgbReplicaSpecs"),
    ),
    "two schedulers": (
        "MXJob",
        {"Scheduler": replica("mxnet", 2)},
        {},
        ("OutOfRange", "spec.mxReplicaSpecs.Scheduler.replicas"),
    ),
    "a tuner that trains": (
        "MXJob",
        {"Tuner": replica("mxnet")},
        {},
        ("Conflict", "spec.mxReplicaSpecs.Tuner"),
    ),
    "an unknown mode": ("MXJob", None, {"jobMode": "MXTrian"}, ("NotAllowed", "spec.jobMode")),
    "no mode": ("MXJob", None, {"jobMode": None}, ("Required", "spec.jobMode")),
    "a run policy in the old place": (
        "PyTorchJob",
        None,
        {"backoffLimit": 3},
        ("UnknownField", "spec.backoffLimit"),
    ),
    "no replica types": ("JAXJob", None, {"jaxReplicaSpecs": None}, ("Required", "spec.jaxReplicaSpecs")),
}


@pytest.mark.parametrize(("kind", "types", "spec", "expected"), BAD.values(), ids=BAD)
def test_an_error_is_reported_at_its_path(
    kind: str, types: dict[str, Any] | None, spec: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert errors(parsed(kind, types, **spec)) == [expected]


BOUNDS: dict[str, tuple[dict[str, int], tuple[int, int, int]]] = {
    "both": ({"minReplicas": 1, "maxReplicas": 4}, (1, 2, 4)),
    "the least copies the most": ({"maxReplicas": 2}, (2, 2, 2)),
    "the most copies the least": ({"minReplicas": 2}, (2, 2, 2)),
    "neither": ({}, (2, 2, 2)),
}


@pytest.mark.parametrize(("policy", "counts"), BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_a_missing_bound_is_the_other_one(
    kind: str, policy: dict[str, int], counts: tuple[int, int, int]
) -> None:
    job = job_of(parsed(kind, {"Worker": replica(KINDS[kind][1], 2)}, elasticPolicy=policy))
    worker = job.roles[0]
    assert (worker.min, worker.replicas, worker.max) == counts
    assert job.options.rendezvous is not None


def test_elastic_workers_without_a_count_start_with_the_minimum() -> None:
    worker = job_of(
        parsed("PyTorchJob", torch(None), elasticPolicy={"minReplicas": 3, "maxReplicas": 5})
    ).roles[0]
    assert (worker.min, worker.replicas, worker.max) == (3, 3, 5)


def test_the_rendezvous_is_read_from_the_elastic_policy() -> None:
    policy = {
        "rdzvBackend": "etcd",
        "rdzvHost": "etcd",
        "rdzvPort": 2379,
        "rdzvId": 7,
        "rdzvConf": [{"key": "timeout", "value": 30}],
        "standalone": True,
        "maxRestarts": 9,
        "nProcPerNode": 4,
    }
    options = job_of(parsed("PyTorchJob", torch(), elasticPolicy=policy)).options
    assert options.processes == "4"
    assert options.rendezvous == Rendezvous(
        backend="etcd",
        host="etcd",
        port=2379,
        job_id="7",
        conf={"timeout": "30"},
        standalone=True,
        max_restarts=9,
    )


def test_a_port_without_its_host_has_no_effect() -> None:
    read = parsed("PyTorchJob", torch(), elasticPolicy={"rdzvPort": 29400})
    assert warnings(read) == [("Ignored", "spec.elasticPolicy.rdzvPort")]


@pytest.mark.parametrize("given", ["auto", "cpu", "gpu", "2", 2])
def test_processes_of_a_replica_are_a_keyword_or_a_number(given: str | int) -> None:
    assert job_of(parsed("PyTorchJob", nprocPerNode=given)).options.processes == str(given)


def test_the_main_container_of_an_mpi_job_can_be_named() -> None:
    two = [{"name": "side", "image": "s"}, {"name": "ranks", "image": "r"}]
    types = {name: {"template": {"spec": {"containers": two}}} for name in ("Launcher", "Worker")}
    job = job_of(parsed("MPIJob", types, mainContainer="ranks"))
    assert [role.template.image for role in job.roles] == ["r", "r"]
    missing = parsed("MPIJob", types, mainContainer="rank")
    assert [code for code, _ in errors(missing)] == ["Required", "Required"]


def test_the_mpi_operator_restarts_its_launcher_and_not_its_workers() -> None:
    job = job_of(parse(yaml.safe_dump(document("MPIJob", version="kubeflow.org/v2beta1"))))
    policies = {role.name: role.restart_policy for role in job.roles}
    assert policies == {"launcher": RestartPolicy.ON_FAILURE, "worker": RestartPolicy.NEVER}


@pytest.mark.parametrize(("given", "codes"), [(False, []), (True, ["Unsupported"])], ids=["false", "true"])
def test_a_launcher_that_also_runs_ranks_is_rejected(given: bool, codes: list[str]) -> None:
    whole = document("MPIJob", version="kubeflow.org/v2beta1", runLauncherAsWorker=given)
    assert [code for code, _ in errors(parse(yaml.safe_dump(whole)))] == codes


def test_min_available_lowers_the_workers_of_some_frameworks() -> None:
    policy = {"schedulingPolicy": {"minAvailable": 2}}
    types = {"Launcher": replica("a"), "Worker": replica("a", 3)}
    worker = job_of(parsed("MPIJob", types, runPolicy=policy)).roles[1]
    assert (worker.min, worker.replicas) == (1, 3)


def test_min_available_has_no_effect_for_other_frameworks() -> None:
    read = parsed(
        "JAXJob", {"Worker": replica("jax", 3)}, runPolicy={"schedulingPolicy": {"minAvailable": 2}}
    )
    assert warnings(read) == [("Ignored", "spec.runPolicy.schedulingPolicy.minAvailable")]
    assert job_of(read).roles[0].min == 3
    whole = parsed(
        "JAXJob", {"Worker": replica("jax", 3)}, runPolicy={"schedulingPolicy": {"minAvailable": 3}}
    )
    assert whole.problems == ()


def test_all_errors_of_a_job_are_reported_at_once() -> None:
    read = parsed(
        "PyTorchJob",
        {"Master": replica("pytorch", 3), "Worker": replica("torch", -1, restartPolicy="Sometimes")},
        elasticPolicy={"minReplicas": "one"},
        nprocPerNode=[],
    )
    assert len(errors(read)) == 6
