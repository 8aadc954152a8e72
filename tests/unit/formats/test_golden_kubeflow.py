"""The operators' own samples of TFJob, PyTorchJob and MPIJob, and what their documentation says that they mean."""

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
    Rendezvous,
    Resources,
    RestartPolicy,
    Role,
    RunPolicy,
    SuccessPolicy,
    Template,
)
from muster_formats import parse

GOLDEN = Path(__file__).parents[2] / "golden" / "formats"
GI = 2**30
KEPT = RunPolicy(clean_pod_policy=CleanPodPolicy.NONE)
"""The operators keep pods and forgive failures as Muster does."""


def pod(container: dict[str, Any], *, metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A template of one container, as Kubernetes is to see it."""
    whole = {"spec": {"containers": [container], **spec}}
    return {**whole, "metadata": metadata} if metadata else whole


def role(
    name: str, count: int, template: Template, policy: RestartPolicy, *, low: int = -1, high: int = -1
) -> Role:
    return Role(
        name=name,
        replicas=count,
        min=count if low < 0 else low,
        max=count if high < 0 else high,
        template=template,
        restart_policy=policy,
    )


TF_PORT = Port(name="tfjob-port", number=2222)
TF_PORT_OF_POD = {"name": "tfjob-port", "containerPort": 2222}


def dist_mnist() -> Job:
    image = "kubeflow/tf-dist-mnist-test:1.0"
    template = Template(
        image=image,
        ports=(TF_PORT,),
        pod=pod({"name": "tensorflow", "image": image, "ports": [TF_PORT_OF_POD]}),
    )
    return Job(
        name="dist-mnist",
        framework=Framework.TENSORFLOW,
        options=FrameworkOptions(evaluator_in_cluster=True),
        format="tfjob",
        roles=(
            role("ps", 2, template, RestartPolicy.NEVER),
            role("worker", 4, template, RestartPolicy.NEVER),
        ),
        run=KEPT,
    )


def dragon() -> Job:
    command = ["/bin/bash", "-c", "python3 train.py"]
    amounts = Resources(cpu=4000, memory=8 * GI)
    limits = {"limits": {"cpu": "4", "memory": "8Gi"}}
    share = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1.0", "kubeshare/gpu_mem": "3189243904"}
    server = {
        "name": "tensorflow",
        "image": "tensorflow/tensorflow:1.15.0-py3",
        "command": command,
        "ports": [{"containerPort": 2222, "name": "tfjob-port"}],
        "resources": limits,
    }
    worker = {
        "name": "tensorflow",
        "image": "tensorflow/tensorflow:1.15.0-gpu-py3",
        "command": command,
        "resources": limits,
        "ports": [TF_PORT_OF_POD],
    }
    ps = Template(
        image="tensorflow/tensorflow:1.15.0-py3",
        command=tuple(command),
        requests=amounts,
        limits=amounts,
        ports=(TF_PORT,),
        grace_s=0,
        pod=pod(server, terminationGracePeriodSeconds=0),
    )
    shared = Template(
        image="tensorflow/tensorflow:1.15.0-gpu-py3",
        command=tuple(command),
        requests=Resources(cpu=4000, memory=8 * GI, gpu=500, gpu_memory=3_189_243_904),
        limits=Resources(cpu=4000, memory=8 * GI, gpu=1000, gpu_memory=3_189_243_904),
        ports=(TF_PORT,),
        annotations=share,
        grace_s=0,
        pod=pod(worker, metadata={"annotations": share}, terminationGracePeriodSeconds=0),
    )
    return Job(
        name="job1",
        annotations={"DRAGON_KUBESHARE": "true"},
        framework=Framework.TENSORFLOW,
        format="tfjob",
        roles=(
            role("ps", 1, ps, RestartPolicy.ON_FAILURE),
            role("worker", 2, shared, RestartPolicy.ON_FAILURE, low=1, high=4),
        ),
        run=RunPolicy(clean_pod_policy=CleanPodPolicy.ALL),
    )


def keras() -> Job:
    image = "kubeflow/multi_worker_strategy:latest"
    container = {
        "name": "tensorflow",
        "image": image,
        "volumeMounts": [{"mountPath": "/train", "name": "training"}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "ports": [TF_PORT_OF_POD],
    }
    volumes = [{"name": "training", "persistentVolumeClaim": {"claimName": "strategy-volume"}}]
    gpu = Resources(gpu=1000)
    template = Template(
        image=image, requests=gpu, limits=gpu, ports=(TF_PORT,), pod=pod(container, volumes=volumes)
    )
    return Job(
        name="multi-worker",
        namespace="kubeflow",
        framework=Framework.TENSORFLOW,
        options=FrameworkOptions(evaluator_in_cluster=True, sparse_cluster=True),
        format="tfjob",
        min_available=2,
        roles=(role("worker", 3, template, RestartPolicy.NEVER, low=2),),
        run=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE, success_policy=SuccessPolicy.ALL_WORKERS),
    )


TORCH_PORT = Port(name="pytorchjob-port", number=23456)
TORCH_PORT_OF_POD = {"name": "pytorchjob-port", "containerPort": 23456}


def gloo() -> Job:
    image = "example.com/pytorch_dist_mnist:latest"
    container = {
        "name": "pytorch",
        "image": image,
        "args": ["--backend", "gloo"],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "ports": [TORCH_PORT_OF_POD],
    }
    gpu = Resources(gpu=1000)
    template = Template(
        image=image,
        args=("--backend", "gloo"),
        requests=gpu,
        limits=gpu,
        ports=(TORCH_PORT,),
        pod=pod(container),
    )
    return Job(
        name="pytorch-dist-mnist-gloo",
        framework=Framework.PYTORCH,
        format="pytorchjob",
        roles=(
            role("master", 1, template, RestartPolicy.ON_FAILURE),
            role("worker", 1, template, RestartPolicy.ON_FAILURE),
        ),
        run=KEPT,
    )


def imagenet() -> Job:
    command = ["python", "-m", "torch.distributed.run", "/workspace/examples/imagenet.py", "--arch=resnet18"]
    image = "quay.io/example/pytorch-elastic-example-imagenet:0.1"
    container = {
        "name": "pytorch",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": 4}},
        "env": [{"name": "LOGLEVEL", "value": "DEBUG"}],
        "command": command,
        "ports": [TORCH_PORT_OF_POD],
    }
    template = Template(
        image=image,
        command=tuple(command),
        env={"LOGLEVEL": "DEBUG"},
        requests=Resources(cpu=4000),
        ports=(TORCH_PORT,),
        pod=pod(container),
    )
    rendezvous = Rendezvous(backend="c10d", conf={"join_timeout": "600"}, max_restarts=100)
    return Job(
        name="elastic-example-imagenet",
        framework=Framework.PYTORCH,
        options=FrameworkOptions(processes="2", rendezvous=rendezvous),
        format="pytorchjob",
        roles=(role("worker", 2, template, RestartPolicy.ON_FAILURE, low=1, high=3),),
        run=KEPT,
    )


def echo() -> Job:
    command = ["python", "-m", "torch.distributed.run", "./echo.py"]
    image = "kubeflow/pytorch-elastic-example-echo:1.0.0"
    container = {"name": "pytorch", "image": image, "command": command, "ports": [TORCH_PORT_OF_POD]}
    template = Template(image=image, command=tuple(command), ports=(TORCH_PORT,), pod=pod(container))
    return Job(
        name="elastic-example-echo",
        framework=Framework.PYTORCH,
        options=FrameworkOptions(rendezvous=Rendezvous(backend="etcd-v2", host="etcd-service", port=2379)),
        format="pytorchjob",
        roles=(role("worker", 2, template, RestartPolicy.ON_FAILURE),),
        run=KEPT,
    )


def horovod() -> Job:
    image = "horovod/horovod:0.20.0"
    words = [
        "-np",
        "4",
        "--allow-run-as-root",
        "-bind-to",
        "none",
        "python",
        "/examples/tensorflow2_mnist.py",
    ]
    launching, working = Resources(cpu=1000, memory=2 * GI), Resources(cpu=2000, memory=4 * GI)
    launcher = {
        "image": image,
        "name": "mpi",
        "command": ["mpirun"],
        "args": words,
        "resources": {"limits": {"cpu": 1, "memory": "2Gi"}},
    }
    worker = {"image": image, "name": "mpi", "resources": {"limits": {"cpu": 2, "memory": "4Gi"}}}
    first = Template(
        image=image,
        command=("mpirun",),
        args=tuple(words),
        requests=launching,
        limits=launching,
        pod=pod(launcher),
    )
    other = Template(image=image, requests=working, limits=working, pod=pod(worker))
    return Job(
        name="tensorflow-mnist",
        namespace="kubeflow",
        framework=Framework.MPI,
        options=FrameworkOptions(processes="2"),
        format="mpijob",
        roles=(
            role("launcher", 1, first, RestartPolicy.NEVER),
            role("worker", 2, other, RestartPolicy.NEVER),
        ),
    )


def pi() -> Job:
    image = "mpioperator/mpi-pi:openmpi"
    amounts = Resources(cpu=1000, memory=GI)
    resources = {"limits": {"cpu": 1, "memory": "1Gi"}}
    launcher_args, worker_args = ["-n", "2", "/home/mpiuser/pi"], ["-De", "-f", "/home/mpiuser/.sshd_config"]
    launcher = {
        "image": image,
        "name": "mpi-launcher",
        "command": ["mpirun"],
        "args": launcher_args,
        "resources": resources,
    }
    worker = {
        "image": image,
        "name": "mpi-worker",
        "command": ["/usr/sbin/sshd"],
        "args": worker_args,
        "resources": resources,
    }
    first = Template(
        image=image,
        command=("mpirun",),
        args=tuple(launcher_args),
        requests=amounts,
        limits=amounts,
        pod=pod(launcher),
    )
    other = Template(
        image=image,
        command=("/usr/sbin/sshd",),
        args=tuple(worker_args),
        requests=amounts,
        limits=amounts,
        pod=pod(worker),
    )
    return Job(
        name="pi",
        framework=Framework.MPI,
        options=FrameworkOptions(processes="1"),
        format="mpijob",
        roles=(
            role("launcher", 1, first, RestartPolicy.ON_FAILURE),
            role("worker", 2, other, RestartPolicy.NEVER),
        ),
        run=RunPolicy(ttl_s=60),
    )


SAMPLES: dict[str, tuple[Job, list[tuple[str, str]]]] = {
    "tfjob/dist-mnist": (dist_mnist(), []),
    "tfjob/dragon-shared-gpus": (
        dragon(),
        [("Ignored", "spec.tfReplicaSpecs.Worker.template.spec.schedulerName")],
    ),
    "tfjob/keras-multi-worker": (keras(), [("KubernetesOnly", "spec.tfReplicaSpecs.worker.template.spec")]),
    "pytorchjob/mnist-gloo": (gloo(), []),
    "pytorchjob/elastic-imagenet": (
        imagenet(),
        [
            ("Ignored", "spec.elasticPolicy.metrics"),
            ("KubernetesOnly", "spec.pytorchReplicaSpecs.Worker.template.spec"),
        ],
    ),
    "pytorchjob/elastic-echo": (echo(), []),
    "mpijob/tensorflow-mnist": (horovod(), []),
    "mpijob/pi-v2beta1": (
        pi(),
        [
            ("Ignored", "spec.sshAuthMountPath"),
            ("Ignored", "spec.launcherCreationPolicy"),
            ("Ignored", "spec.mpiImplementation"),
        ],
    ),
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
