"""Documented distributed runs of Polyaxon today, and the jobs that they are."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster_core.models import (
    Category,
    CleanPodPolicy,
    Convention,
    Framework,
    FrameworkOptions,
    Job,
    Port,
    Rendezvous,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    Severity,
    Template,
    Toleration,
)
from muster_formats import parse

GOLDEN = Path(__file__).parents[2] / "golden" / "formats" / "polyaxon_v1"
MI = 2**20
OPTIONS = FrameworkOptions(conventions=(Convention.POLYAXON,))
RUN = RunPolicy(backoff_limit=0, clean_pod_policy=CleanPodPolicy.ALL)


def role(name: str, count: int = 1, **fields: Any) -> Role:
    bounds: dict[str, Any] = {"min": count, "max": count, **fields}
    return Role(name=name, replicas=count, **bounds)


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [container]}}


ZONES = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "kubernetes.io/e2e-az-name", "operator": "In", "values": ["e2e-az1", "e2e-az2"]}
                ]
            }
        ]
    }
}
TF_PORT = Port(name="tfjob-port", number=2222)
TF_PORTS = [{"name": "tfjob-port", "containerPort": 2222}]
TRAIN = ["video_prediction_train", "--model=DNA"]

TENSORFLOW = Job(
    name="video-prediction",
    format="polyaxon-1",
    queue="research",
    framework=Framework.TENSORFLOW,
    category=Category.EXPERIMENTS,
    options=msgspec.structs.replace(OPTIONS, sparse_cluster=True, evaluator_in_cluster=True),
    min_available=13,
    run=RunPolicy(backoff_limit=0, clean_pod_policy=CleanPodPolicy.RUNNING, queue_deadline_s=600),
    roles=(
        role(
            "chief",
            template=Template(
                image="my-image",
                command=tuple(TRAIN),
                ports=(TF_PORT,),
                pod=pod(name="tensorflow", image="my-image", command=TRAIN, ports=TF_PORTS),
            ),
        ),
        role(
            "ps",
            10,
            template=Template(
                image="my-image",
                command=tuple(TRAIN),
                ports=(TF_PORT,),
                requests=Resources(cpu=3000, memory=256 * MI),
                limits=Resources(cpu=3000, memory=256 * MI),
                tolerations=(Toleration(key="key", operator="Exists", effect="NoSchedule"),),
                pod={
                    "spec": {
                        "tolerations": [{"key": "key", "operator": "Exists", "effect": "NoSchedule"}],
                        "containers": [
                            {
                                "name": "tensorflow",
                                "image": "my-image",
                                "command": TRAIN,
                                "resources": {"limits": {"cpu": 3, "memory": "256Mi"}},
                                "ports": TF_PORTS,
                            }
                        ],
                    }
                },
            ),
        ),
        role(
            "worker",
            5,
            min=1,
            restart_policy=RestartPolicy.ON_FAILURE,
            template=Template(
                image="my-image",
                command=tuple(TRAIN),
                ports=(TF_PORT,),
                requests=Resources(memory=300 * MI),
                limits=Resources(memory=300 * MI),
                node_affinity=ZONES,
                pod={
                    "spec": {
                        "affinity": {"nodeAffinity": ZONES},
                        "containers": [
                            {
                                "name": "tensorflow",
                                "image": "my-image",
                                "command": TRAIN,
                                "resources": {
                                    "requests": {"memory": "300Mi"},
                                    "limits": {"memory": "300Mi"},
                                },
                                "ports": TF_PORTS,
                            }
                        ],
                    }
                },
            ),
        ),
        role(
            "evaluator",
            template=Template(
                image="my-image",
                command=("video_prediction_eval",),
                ports=(TF_PORT,),
                pod=pod(
                    name="tensorflow", image="my-image", command=["video_prediction_eval"], ports=TF_PORTS
                ),
            ),
        ),
    ),
)

PYTORCH = Job(
    name="resnet",
    format="polyaxon-1",
    framework=Framework.PYTORCH,
    category=Category.EXPERIMENTS,
    run=RUN,
    options=msgspec.structs.replace(
        OPTIONS,
        processes="2",
        rendezvous=Rendezvous(
            backend="etcd-v2",
            host="etcd.default.svc",
            port=2379,
            job_id="resnet-1",
            conf={"timeout": "300"},
            max_restarts=4,
        ),
    ),
    roles=(
        role(
            "worker",
            3,
            min=2,
            max=6,
            restart_policy=RestartPolicy.ON_FAILURE,
            template=Template(
                image="my-image",
                command=("torchrun", "train.py"),
                ports=(Port(name="pytorchjob-port", number=23456),),
                requests=Resources(gpu=2000),
                limits=Resources(gpu=2000),
                pod=pod(
                    name="pytorch",
                    image="my-image",
                    command=["torchrun", "train.py"],
                    resources={"limits": {"nvidia.com/gpu": 2}},
                    ports=[{"name": "pytorchjob-port", "containerPort": 23456}],
                ),
            ),
        ),
    ),
)

BENCHMARKS = "mpioperator/tensorflow-benchmarks:latest"
MPI = Job(
    name="benchmarks",
    format="polyaxon-1",
    framework=Framework.MPI,
    category=Category.EXPERIMENTS,
    run=RUN,
    options=msgspec.structs.replace(OPTIONS, processes="2"),
    roles=(
        role(
            "launcher",
            template=Template(
                image=BENCHMARKS,
                command=("mpirun", "python", "run.py"),
                pod=pod(name="main", image=BENCHMARKS, command=["mpirun", "python", "run.py"]),
            ),
        ),
        role(
            "worker",
            2,
            template=Template(
                image=BENCHMARKS,
                requests=Resources(gpu=1000),
                limits=Resources(gpu=1000),
                node_selector={"polyaxon.com": "node_for_worker_tasks"},
                pod={
                    "spec": {
                        "nodeSelector": {"polyaxon.com": "node_for_worker_tasks"},
                        "containers": [
                            {
                                "name": "main",
                                "image": BENCHMARKS,
                                "resources": {"limits": {"nvidia.com/gpu": 1}},
                            }
                        ],
                    }
                },
            ),
        ),
    ),
)


def plain_roles(name: str, port: Port, command: tuple[str, ...]) -> Template:
    """The template of the older Kubeflow kinds: a container of the framework's name with its port."""
    return Template(
        image="my-image",
        command=command,
        ports=(port,),
        pod=pod(
            name=name,
            image="my-image",
            command=list(command),
            ports=[{"name": port.name, "containerPort": port.number}],
        ),
    )


PADDLE_TEMPLATE = plain_roles(
    "paddle", Port(name="master", number=36543), ("paddle", "logic", "--param1=Val1")
)
PADDLE = Job(
    name="paddle",
    format="polyaxon-1",
    framework=Framework.PADDLE,
    category=Category.EXPERIMENTS,
    run=RunPolicy(backoff_limit=0, ttl_s=12, clean_pod_policy=CleanPodPolicy.RUNNING),
    options=msgspec.structs.replace(OPTIONS, rendezvous=Rendezvous(max_restarts=2)),
    roles=(
        role("master", template=PADDLE_TEMPLATE, restart_policy=RestartPolicy.ON_FAILURE),
        role("worker", 2, max=4, template=PADDLE_TEMPLATE),
    ),
)

XGB_TEMPLATE = plain_roles("xgboost", Port(name="xgboostjob-port", number=9999), ("python", "main.py"))
XGBOOST = Job(
    name="iris",
    format="polyaxon-1",
    framework=Framework.XGBOOST,
    category=Category.EXPERIMENTS,
    run=RUN,
    options=OPTIONS,
    roles=(role("master", template=XGB_TEMPLATE), role("worker", 2, template=XGB_TEMPLATE)),
)

MX_TEMPLATE = plain_roles("mxnet", Port(name="mxjob-port", number=9091), ("python", "train.py"))
MXNET = Job(
    name="mnist",
    format="polyaxon-1",
    framework=Framework.MXNET,
    category=Category.EXPERIMENTS,
    run=RUN,
    options=OPTIONS,
    roles=(
        role("scheduler", template=MX_TEMPLATE),
        role("server", 2, template=MX_TEMPLATE),
        role("worker", 3, template=MX_TEMPLATE),
    ),
)

EXPECTED = {
    "tfjob": TENSORFLOW,
    "pytorchjob": PYTORCH,
    "mpijob": MPI,
    "paddlejob": PADDLE,
    "xgbjob": XGBOOST,
    "mxjob": MXNET,
}
ELSEWHERE = {"job", "notebook", "parameters", "raycluster", "daskcluster"}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_documented_example_is_the_job_that_its_documentation_describes(name: str) -> None:
    parsed = parse((GOLDEN / f"{name}.yaml").read_text())
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    (job,) = parsed.jobs
    assert msgspec.structs.replace(job, warnings=()) == EXPECTED[name]


def test_every_documented_example_is_expected() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == {*EXPECTED, *ELSEWHERE}
