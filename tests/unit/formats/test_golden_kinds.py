"""Published samples of the other operators' kinds, of Kubernetes' Job and of TrainJob, and what their documentation says that they mean."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster_core.models import (
    CleanPodPolicy,
    Framework,
    FrameworkOptions,
    Job,
    Port,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    Template,
    Toleration,
)
from muster_formats import parse

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"
GI = 2**30
KEPT = RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)
INDEX = "$(MUSTER_INDEX)"


def pod(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A template of one container, as Kubernetes is to see it."""
    return {"spec": {"containers": [container], **spec}}


def role(name: str, count: int, template: Template, policy: RestartPolicy = RestartPolicy.NEVER) -> Role:
    return Role(name=name, replicas=count, min=count, max=count, template=template, restart_policy=policy)


def listed(port: Port) -> dict[str, Any]:
    return {"name": port.name, "containerPort": port.number}


def iris() -> Job:
    words = ("--job_type=Train", "--n_estimators=10")
    image = "docker.io/example/xgboost-dist-iris:latest"
    ports = [{"containerPort": 9991, "name": "xgboostjob-port"}]
    template = Template(
        image=image,
        args=words,
        ports=(Port(name="xgboostjob-port", number=9991),),
        pod=pod({"name": "xgboost", "image": image, "ports": ports, "args": list(words)}),
    )
    return Job(
        name="xgboost-dist-iris-train",
        framework=Framework.XGBOOST,
        format="xgboostjob",
        roles=(role("master", 1, template), role("worker", 2, template, RestartPolicy.EXIT_CODE)),
        run=KEPT,
    )


def paddle() -> Job:
    image = "registry.example.com/paddlepaddle/paddle:2.4.0-gpu"
    words = ("-m", "paddle.distributed.launch", "run_check")
    container = {
        "name": "paddle",
        "image": image,
        "command": ["python"],
        "args": list(words),
        "ports": [{"containerPort": 37777, "name": "master"}],
        "imagePullPolicy": "Always",
        "resources": {"limits": {"nvidia.com/gpu": 2}},
        "volumeMounts": [{"mountPath": "/dev/shm", "name": "dshm"}],
    }
    gpus = Resources(gpu=2000)
    template = Template(
        image=image,
        command=("python",),
        args=words,
        requests=gpus,
        limits=gpus,
        ports=(Port(name="master", number=37777),),
        pod=pod(container, volumes=[{"name": "dshm", "emptyDir": {"medium": "Memory"}}]),
    )
    return Job(
        name="paddle-simple-gpu",
        namespace="kubeflow",
        framework=Framework.PADDLE,
        format="paddlejob",
        roles=(role("worker", 2, template, RestartPolicy.ON_FAILURE),),
        run=KEPT,
    )


def jax() -> Job:
    image, port = "docker.io/example/jaxgoogle:latest", Port(name="jaxjob-port", number=6666)
    container = {"name": "jax", "image": image, "command": ["python3", "train.py"], "ports": [listed(port)]}
    template = Template(image=image, command=("python3", "train.py"), ports=(port,), pod=pod(container))
    return Job(
        name="jaxjob-simple",
        namespace="kubeflow",
        framework=Framework.JAX,
        format="jaxjob",
        roles=(role("worker", 2, template, RestartPolicy.ON_FAILURE),),
        run=KEPT,
    )


MX_PORT = Port(name="mxjob-port", number=9091)


def mnist() -> Job:
    image, gpu = "mxjob/mxnet:gpu", Resources(gpu=1000)
    words = ["train_mnist.py", "--num-epochs", "10", "--kv-store", "dist_device_sync", "--gpus", "0"]
    waiting = Template(
        image=image,
        ports=(MX_PORT,),
        pod=pod({"name": "mxnet", "image": image, "ports": [listed(MX_PORT)]}),
    )
    container = {
        "name": "mxnet",
        "image": image,
        "command": ["python"],
        "args": words,
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "ports": [listed(MX_PORT)],
    }
    working = Template(
        image=image,
        command=("python",),
        args=tuple(words),
        requests=gpu,
        limits=gpu,
        ports=(MX_PORT,),
        pod=pod(container),
    )
    return Job(
        name="mxnet-job",
        framework=Framework.MXNET,
        format="mxjob",
        roles=(role("scheduler", 1, waiting), role("server", 1, waiting), role("worker", 1, working)),
        run=KEPT,
    )


def tuning() -> Job:
    image = "mxjob/auto-tuning:gpu"
    container = {"name": "mxnet", "image": image, "command": ["python3"], "ports": [listed(MX_PORT)]}
    template = Template(image=image, command=("python3",), ports=(MX_PORT,), pod=pod(container))
    return Job(
        name="auto-tuning-job",
        framework=Framework.MXNET,
        format="mxjob",
        roles=(
            role("tunertracker", 1, template),
            role("tunerserver", 2, template),
            role("tuner", 1, template),
        ),
        run=KEPT,
    )


def pi() -> Job:
    command = ["perl", "-Mbignum=bpi", "-wle", "print bpi(2000)"]
    container = {"name": "pi", "image": "perl:5.34.0", "command": command}
    template = Template(image="perl:5.34.0", command=tuple(command), pod=pod(container))
    return Job(
        name="pi",
        format="batchjob",
        roles=(role("worker", 1, template, RestartPolicy.ON_FAILURE),),
        run=RunPolicy(backoff_limit=4),
    )


def indexed() -> Job:
    image = "docker.io/library/busybox"
    container = {
        "name": "worker",
        "image": image,
        "command": ["rev", "/input/data.txt"],
        "env": [{"name": "JOB_COMPLETION_INDEX", "value": INDEX}],
    }
    template = Template(
        image=image,
        command=("rev", "/input/data.txt"),
        env={"JOB_COMPLETION_INDEX": INDEX},
        pod=pod(container),
    )
    return Job(
        name="indexed-job",
        format="batchjob",
        roles=(role("worker", 5, template, RestartPolicy.ON_FAILURE),),
        run=RunPolicy(backoff_limit=6, active_deadline_s=600, ttl_s=100),
    )


def queue() -> Job:
    image, broker = "gcr.io/example/job-wq-2", "amqp://guest@rabbitmq-service:5672"
    container = {"name": "c", "image": image, "env": [{"name": "BROKER_URL", "value": broker}]}
    template = Template(image=image, env={"BROKER_URL": broker}, pod=pod(container))
    return Job(
        name="job-wq-2",
        format="batchjob",
        roles=(role("worker", 2, template),),
        run=RunPolicy(backoff_limit=0),
    )


def patched() -> Job:
    image, port = "pytorch/pytorch:2.7.1", Port(name="pytorchjob-port", number=23456)
    toleration = {"key": "training-workload", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    container = {
        "name": "node",
        "image": image,
        "command": ["torchrun", "train.py"],
        "env": [{"name": "CUSTOM_VAR", "value": "custom-value"}],
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}},
        "ports": [listed(port)],
    }
    whole = pod(
        container,
        serviceAccountName="training-sa",
        nodeSelector={"node-type": "training"},
        tolerations=[toleration],
    )
    template = Template(
        image=image,
        command=("torchrun", "train.py"),
        env={"CUSTOM_VAR": "custom-value"},
        requests=Resources(cpu=2000, memory=4 * GI),
        limits=Resources(cpu=4000, memory=8 * GI),
        ports=(port,),
        labels={"team": "ml-platform"},
        node_selector={"node-type": "training"},
        tolerations=(Toleration(**toleration),),
        pod={**whole, "metadata": {"labels": {"team": "ml-platform"}}},
    )
    return Job(
        name="runtime-patches-example",
        framework=Framework.PYTORCH,
        options=FrameworkOptions(processes="4"),
        format="trainjob",
        roles=(role("worker", 2, template, RestartPolicy.ON_FAILURE),),
        run=RunPolicy(backoff_limit=6),
    )


def hello() -> Job:
    port = Port(name="jaxjob-port", number=6666)
    container = {
        "name": "node",
        "image": "alpine:latest",
        "command": ["sh", "-c", "echo hello"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "ports": [listed(port)],
    }
    volumes: list[Any] = [{"name": "data", "emptyDir": {}}]
    template = Template(
        image="alpine:latest",
        command=("sh", "-c", "echo hello"),
        ports=(port,),
        node_selector={"disk": "ssd"},
        pod=pod(container, nodeSelector={"disk": "ssd"}, volumes=volumes),
    )
    return Job(
        name="hello-world",
        labels={"app": "training", "team": "vision"},
        framework=Framework.JAX,
        format="trainjob",
        roles=(role("worker", 1, template, RestartPolicy.ON_FAILURE),),
        run=RunPolicy(backoff_limit=6, active_deadline_s=60),
    )


SAMPLES: dict[str, tuple[Job, list[tuple[str, str]]]] = {
    "xgboostjob/iris": (iris(), []),
    "paddlejob/simple-gpu": (
        paddle(),
        [("KubernetesOnly", "spec.paddleReplicaSpecs.Worker.template.spec")],
    ),
    "jaxjob/cpu-demo": (jax(), []),
    "mxjob/mnist-train": (mnist(), []),
    "mxjob/auto-tuning": (tuning(), [("Ignored", "spec.mxReplicaSpecs.TunerServer.label")]),
    "batchjob/pi": (pi(), []),
    "batchjob/indexed": (indexed(), []),
    "batchjob/work-queue": (
        queue(),
        [
            ("Ignored", "spec.podFailurePolicy"),
            ("Ignored", "spec.template.metadata.name"),
        ],
    ),
    "trainjob/patched": (patched(), [("KubernetesOnly", "spec.trainer")]),
    "trainjob/hello-world": (hello(), [("KubernetesOnly", "spec.trainer")]),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_published_sample_means_what_its_documentation_says(name: str) -> None:
    expected, warnings = SAMPLES[name]
    parsed = parse((GOLDEN / f"{name}.yaml").read_text())
    assert [(problem.code, problem.path) for problem in parsed.problems] == warnings
    (job,) = parsed.jobs
    assert msgspec.structs.replace(job, warnings=()) == expected


def test_every_sample_is_compared() -> None:
    compared = {name.split("/")[0] for name in SAMPLES}
    found = {
        f"{path.parent.name}/{path.stem}" for kind in compared for path in (GOLDEN / kind).glob("*.yaml")
    }
    assert found == set(SAMPLES)
