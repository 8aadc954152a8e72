"""Documented jobs, services and clusters of Polyaxon today, and the jobs that they are."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster_core.models import (
    Category,
    CleanPodPolicy,
    Convention,
    FrameworkOptions,
    Job,
    JobKind,
    Port,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    Severity,
    Template,
    Toleration,
)
from muster_formats import parse
from muster_formats.polyaxon_v1.roles import JOIN

GOLDEN = Path(__file__).parents[2] / "golden" / "formats" / "polyaxon_v1"
MI = 2**20
OPTIONS = FrameworkOptions(conventions=(Convention.POLYAXON,))
RUN = RunPolicy(backoff_limit=0, clean_pod_policy=CleanPodPolicy.ALL)


def role(name: str, count: int = 1, **fields: Any) -> Role:
    bounds: dict[str, Any] = {"min": count, "max": count, **fields}
    return Role(name=name, replicas=count, **bounds)


def pod(**container: Any) -> dict[str, Any]:
    return {"spec": {"containers": [container]}}


PREPROCESS = Job(
    name="preprocess",
    format="polyaxon-1",
    queue="batch",
    priority=10,
    category=Category.JOBS,
    options=OPTIONS,
    annotations={"polyaxon.com/description": "Cleans the data", "polyaxon.com/tags": "data,nightly"},
    run=RunPolicy(backoff_limit=5, active_deadline_s=500, ttl_s=400, clean_pod_policy=CleanPodPolicy.RUNNING),
    roles=(
        role(
            "job",
            restart_policy=RestartPolicy.ON_FAILURE,
            template=Template(
                image="my-image",
                command=("python", "clean.py"),
                requests=Resources(cpu=1000, memory=200 * MI),
                limits=Resources(cpu=2000, memory=200 * MI),
                labels={"label_key1": "val1"},
                annotations={"annotation_key1": "val1"},
                node_selector={"polyaxon.com": "core"},
                tolerations=(Toleration(key="key", operator="Exists"),),
                pod={
                    "metadata": {
                        "labels": {"label_key1": "val1"},
                        "annotations": {"annotation_key1": "val1"},
                    },
                    "spec": {
                        "nodeSelector": {"polyaxon.com": "core"},
                        "tolerations": [{"key": "key", "operator": "Exists"}],
                        "serviceAccountName": "new-sa",
                        "imagePullSecrets": [{"name": "secret1"}, {"name": "secret2"}],
                        "securityContext": {"runAsUser": 1000, "runAsGroup": 3000},
                        "volumes": [{"name": "volume1", "persistentVolumeClaim": {"claimName": "pvc1"}}],
                        "containers": [
                            {
                                "name": "main",
                                "image": "my-image",
                                "command": ["python", "clean.py"],
                                "resources": {
                                    "requests": {"cpu": 1, "memory": "200Mi"},
                                    "limits": {"cpu": 2, "memory": "200Mi"},
                                },
                                "volumeMounts": [{"name": "volume1", "mountPath": "/mnt/vol/path"}],
                            }
                        ],
                    },
                },
            ),
        ),
    ),
)

NOTEBOOK_ARGS = (
    "--no-browser",
    "--ip=0.0.0.0",
    "--port=$(MUSTER_PORT)",
    "--NotebookApp.base_url=/",
)
NOTEBOOK = Job(
    name="my-notebook",
    format="polyaxon-1",
    kind=JobKind.SERVICE,
    category=Category.JOBS,
    options=OPTIONS,
    run=RunPolicy(clean_pod_policy=CleanPodPolicy.ALL),
    roles=(
        role(
            "service",
            restart_policy=RestartPolicy.ALWAYS,
            template=Template(
                image="jupyter/tensorflow-notebook",
                command=("jupyter", "lab"),
                args=NOTEBOOK_ARGS,
                ports=(Port(name="http", number=8888),),
                requests=Resources(gpu=1000),
                limits=Resources(gpu=1000),
                pod=pod(
                    name="main",
                    image="jupyter/tensorflow-notebook",
                    command=["jupyter", "lab"],
                    args=list(NOTEBOOK_ARGS),
                    ports=[{"name": "http", "containerPort": 8888}],
                    resources={"limits": {"nvidia.com/gpu": 1}},
                ),
            ),
        ),
    ),
)

ARGS = (
    "--batch_size=128",
    "--lr=0.05",
    "--activation=sigmoid",
    "--check",
    "[64,128]",
    "128",
    "opt=adam",
    "true",
    "train $(MUSTER_JOB_ID) hello",
)
PARAMETERS = Job(
    name="train",
    format="polyaxon-1",
    category=Category.JOBS,
    run=RUN,
    options=msgspec.structs.replace(
        OPTIONS,
        parameters={
            "batch_size": 128,
            "lr": 0.05,
            "activation": "sigmoid",
            "check": True,
            "quiet": False,
            "steps": None,
            "layers": [64, 128],
            "optimizer": "adam",
            "message": "hello",
        },
    ),
    roles=(
        role(
            "job",
            template=Template(
                image="foo:bar",
                command=("python3", "model.py"),
                args=ARGS,
                env={"BATCH_SIZE": "128", "MESSAGE": "hello"},
                pod=pod(
                    name="main",
                    image="foo:bar",
                    command=["python3", "model.py"],
                    args=list(ARGS),
                    env=[{"name": "BATCH_SIZE", "value": "128"}, {"name": "MESSAGE", "value": "hello"}],
                ),
            ),
        ),
    ),
)

RAY_HEAD = (
    *("ray", "start", "--head", "--port=$(MUSTER_PORT)", "--block"),
    *("--dashboard-host=0.0.0.0", "--num-cpus=0", "--include-dashboard=true"),
)
RAY_WORKER = (
    *("python3", "-c", JOIN, "head", "ray", "start", "--address=@ADDRESS@", "--block"),
    *("--num-cpus=2", "--num-gpus=1"),
)
RAY_PORTS = {"gcs-server": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}
RAY = Job(
    name="ray",
    format="polyaxon-1",
    kind=JobKind.SERVICE,
    category=Category.EXPERIMENTS,
    run=RunPolicy(clean_pod_policy=CleanPodPolicy.ALL),
    options=OPTIONS,
    roles=(
        role(
            "head",
            restart_policy=RestartPolicy.ALWAYS,
            template=Template(
                image="rayproject/ray:2.5.0",
                command=RAY_HEAD,
                requests=Resources(cpu=1000),
                limits=Resources(cpu=1000),
                ports=tuple(Port(name=name, number=number) for name, number in RAY_PORTS.items()),
                pod=pod(
                    name="main",
                    image="rayproject/ray:2.5.0",
                    command=list(RAY_HEAD),
                    resources={"limits": {"cpu": "1"}},
                    ports=[{"name": name, "containerPort": number} for name, number in RAY_PORTS.items()],
                ),
            ),
        ),
        role(
            "small-group",
            5,
            restart_policy=RestartPolicy.ON_FAILURE,
            template=Template(
                image="rayproject/ray:2.5.0",
                command=RAY_WORKER,
                requests=Resources(cpu=1500, gpu=1000),
                limits=Resources(cpu=1500, gpu=1000),
                pod=pod(
                    name="main",
                    image="rayproject/ray:2.5.0",
                    command=list(RAY_WORKER),
                    resources={"limits": {"cpu": "1500m", "nvidia.com/gpu": 1}},
                ),
            ),
        ),
    ),
)

DASK_SCHEDULER = ("dask-scheduler", "--port=$(MUSTER_PORT)")
DASK_WORKER = (
    *("python3", "-c", JOIN, "scheduler", "env", "DASK_SCHEDULER_ADDRESS=tcp://@ADDRESS@"),
    *("dask-worker", "--name", "$(MUSTER_JOB)-$(MUSTER_ROLE)-$(MUSTER_INDEX)", "--nthreads", "2"),
)
DASK_PORTS = {"tcp-comm": 8786, "http-dashboard": 8787}
DASK = Job(
    name="dask",
    format="polyaxon-1",
    kind=JobKind.SERVICE,
    category=Category.EXPERIMENTS,
    run=RunPolicy(clean_pod_policy=CleanPodPolicy.ALL),
    options=OPTIONS,
    roles=(
        role(
            "scheduler",
            restart_policy=RestartPolicy.ALWAYS,
            template=Template(
                image="daskdev/dask:latest",
                command=DASK_SCHEDULER,
                ports=tuple(Port(name=name, number=number) for name, number in DASK_PORTS.items()),
                pod=pod(
                    name="main",
                    image="daskdev/dask:latest",
                    command=list(DASK_SCHEDULER),
                    ports=[{"name": name, "containerPort": number} for name, number in DASK_PORTS.items()],
                ),
            ),
        ),
        role(
            "worker",
            3,
            restart_policy=RestartPolicy.ALWAYS,
            template=Template(
                image="daskdev/dask:latest",
                command=DASK_WORKER,
                pod=pod(name="main", image="daskdev/dask:latest", command=list(DASK_WORKER)),
            ),
        ),
    ),
)

EXPECTED = {
    "job": PREPROCESS,
    "notebook": NOTEBOOK,
    "parameters": PARAMETERS,
    "raycluster": RAY,
    "daskcluster": DASK,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_documented_example_is_the_job_that_its_documentation_describes(name: str) -> None:
    parsed = parse((GOLDEN / f"{name}.yaml").read_text())
    assert [problem for problem in parsed.problems if problem.severity is Severity.ERROR] == []
    (job,) = parsed.jobs
    assert msgspec.structs.replace(job, warnings=()) == EXPECTED[name]
