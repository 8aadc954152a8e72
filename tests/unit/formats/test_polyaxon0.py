"""Documented examples of every kind of Polyaxon 0.x, and the jobs that they are."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster_core.models import (
    Build,
    Category,
    Convention,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    Port,
    Resources,
    RestartPolicy,
    Role,
    Severity,
    Template,
    Toleration,
)
from muster_formats import parse
from muster_formats.native import native_text

GOLDEN = Path(__file__).parents[2] / "golden" / "formats" / "polyaxon_v0"
MI = 2**20
OPTIONS = FrameworkOptions(conventions=(Convention.POLYAXON,))
TRAIN = ("/bin/bash", "-c", "python train.py")


def role(name: str, count: int = 1, **fields: Any) -> Role:
    return Role(name=name, replicas=count, min=count, max=count, **fields)


def amounts(cpu: int, memory_mib: int, gpu: int = 0) -> Resources:
    return Resources(cpu=cpu, memory=memory_mib * MI, gpu=gpu)


def trains(requests: Resources, limits: Resources, **fields: Any) -> Template:
    return Template(command=TRAIN, requests=requests, limits=limits, **fields)


WITH_GPU = trains(amounts(1000, 256, 1000), amounts(2000, 1024, 1000))
WITHOUT_GPU = trains(amounts(1000, 256), amounts(2000, 1024))

DISTRIBUTED = Job(
    name="mnist",
    format="polyaxon-0",
    category=Category.EXPERIMENTS,
    framework=Framework.TENSORFLOW,
    options=FrameworkOptions(conventions=(Convention.POLYAXON,), model_dir="outputs/mnist"),
    roles=(
        role("master", template=WITH_GPU),
        role("worker", 7, template=WITH_GPU, overrides={2: WITHOUT_GPU}),
        role(
            "ps",
            3,
            template=trains(amounts(1000, 256), amounts(1000, 256)),
            overrides={0: trains(amounts(1000, 512), amounts(1000, 512))},
        ),
    ),
)

EVERYTHING = (Toleration(operator="Exists"),)
OLDER = Job(
    name="older",
    format="polyaxon-0",
    category=Category.EXPERIMENTS,
    framework=Framework.TENSORFLOW,
    options=FrameworkOptions(conventions=(Convention.POLYAXON,), model_dir="outputs/older"),
    roles=(
        role(
            "master",
            template=trains(
                amounts(2000, 512),
                amounts(4000, 2048),
                node_selector={"polyaxon": "experiments"},
                tolerations=(Toleration(key="key", operator="Exists", effect="NoSchedule"),),
            ),
        ),
        role(
            "worker",
            4,
            template=trains(amounts(1000, 256, 1000), amounts(2000, 1024, 1000), tolerations=EVERYTHING),
            overrides={
                2: trains(amounts(1000, 256), amounts(2000, 1024), tolerations=EVERYTHING),
                3: trains(
                    amounts(1000, 256, 1000),
                    amounts(2000, 1024, 1000),
                    node_selector={"polyaxon": "special_node"},
                    tolerations=(Toleration(key="key", operator="Exists"),),
                ),
            },
        ),
        role(
            "ps",
            1,
            template=Template(command=TRAIN),
            overrides={0: trains(amounts(1000, 256), amounts(1000, 1024))},
        ),
    ),
)

TF_IMAGE = "tensorflow/tensorflow:1.4.1-py3"
STEPS = ("pip3 install --no-cache-dir -U polyaxon-client==0.5.5",)
DECLARED = "--num_steps=500 --learning_rate=0.001 --dropout=0.25 --num_epochs=1 --activation=relu"

CLIENT = Job(
    name="declarations-build",
    format="polyaxon-0",
    kind=JobKind.BUILD,
    category=Category.BUILDS,
    build=Build(base=TF_IMAGE, image="declarations:5daed5156813", steps=STEPS),
    roles=(role("build", template=Template(image=TF_IMAGE, command=("sh", "-ec", STEPS[0]))),),
)
DECLARATIONS = Job(
    name="declarations",
    format="polyaxon-0",
    category=Category.EXPERIMENTS,
    built_by="declarations-build",
    options=FrameworkOptions(
        conventions=(Convention.POLYAXON,),
        parameters={
            "batch_size": 128,
            "num_steps": 500,
            "learning_rate": 0.001,
            "dropout": 0.25,
            "num_epochs": 1,
            "activation": "relu",
        },
    ),
    roles=(
        role(
            "master",
            template=Template(
                image="declarations:5daed5156813",
                command=("/bin/bash", "-c", f"python3 model.py --batch_size=128 {DECLARED}"),
            ),
        ),
    ),
)

TYPED = Job(
    name="typed-inputs",
    format="polyaxon-0",
    category=Category.EXPERIMENTS,
    options=FrameworkOptions(
        conventions=(Convention.POLYAXON,),
        parameters={"activation": "sigmoid", "batch_size": 128, "learning_rate": 0.001},
    ),
    roles=(
        role(
            "master",
            template=Template(
                image=TF_IMAGE,
                command=(
                    "/bin/bash",
                    "-c",
                    "python3 model.py --batch_size=128 --learning_rate=0.001 --activation=sigmoid",
                ),
            ),
        ),
    ),
)

KEYS = {"KEY1": "VALUE1", "KEY2": "VALUE2"}
PIP = ("pip install PILLOW", "pip install scikit-learn")
BUILD = Job(
    name="image",
    format="polyaxon-0",
    kind=JobKind.BUILD,
    category=Category.BUILDS,
    options=OPTIONS,
    build=Build(base="my_image", image="image:b029e1c5111f", steps=PIP, env=KEYS),
    roles=(
        role("build", template=Template(image="my_image", command=("sh", "-ec", "\n".join(PIP)), env=KEYS)),
    ),
)

JUPYTER = "exec jupyter notebook --no-browser --allow-root --ip=0.0.0.0 --port=$MUSTER_PORT"
NOTEBOOK = Job(
    name="notebook",
    format="polyaxon-0",
    kind=JobKind.SERVICE,
    category=Category.JOBS,
    options=OPTIONS,
    roles=(
        role(
            "notebook",
            restart_policy=RestartPolicy.ALWAYS,
            template=Template(
                image=TF_IMAGE,
                command=("/bin/bash", "-c", JUPYTER),
                ports=(Port(name="http", number=8888),),
                node_selector={"polyaxon.com": "node_for_notebook_jobs"},
            ),
        ),
    ),
)

PREPARE_POD = {
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "my_image",
                "command": ["/bin/bash", "-c", "test"],
                "envFrom": [
                    {"secretRef": {"name": "secret1"}},
                    {"secretRef": {"name": "secret2"}},
                    {"configMapRef": {"name": "configmap1"}},
                    {"configMapRef": {"name": "configmap2"}},
                ],
                "resources": {
                    "requests": {"cpu": "1", "memory": "200Mi"},
                    "limits": {"cpu": "2", "memory": "200Mi"},
                },
                "volumeMounts": [
                    {"name": "data-data1", "mountPath": "/data/data1"},
                    {"name": "data-data2", "mountPath": "/data/data2"},
                    {"name": "outputs-outputs1", "mountPath": "/outputs/outputs1"},
                ],
            }
        ],
        "volumes": [
            {"name": "data-data1", "persistentVolumeClaim": {"claimName": "data1"}},
            {"name": "data-data2", "persistentVolumeClaim": {"claimName": "data2"}},
            {"name": "outputs-outputs1", "persistentVolumeClaim": {"claimName": "outputs1"}},
        ],
        "nodeSelector": {"polyaxon.com": "node_for_jobs"},
        "tolerations": [{"key": "key", "operator": "Exists"}],
    }
}
PREPARE = Job(
    name="prepare",
    format="polyaxon-0",
    category=Category.JOBS,
    options=OPTIONS,
    annotations={"polyaxon.com/tags": "foo,bar"},
    roles=(
        role(
            "job",
            template=Template(
                image="my_image",
                command=("/bin/bash", "-c", "test"),
                requests=amounts(1000, 200),
                limits=amounts(2000, 200),
                node_selector={"polyaxon.com": "node_for_jobs"},
                tolerations=(Toleration(key="key", operator="Exists"),),
                pod=PREPARE_POD,
            ),
        ),
    ),
)

JOBS = {
    "distributed-tensorflow": (DISTRIBUTED,),
    "older-form": (OLDER,),
    "declarations": (CLIENT, DECLARATIONS),
    "typed-inputs": (TYPED,),
    "build": (BUILD,),
    "notebook": (NOTEBOOK,),
    "job": (PREPARE,),
}
WARNINGS = {
    "distributed-tensorflow": [
        ("Misspelt", "environment.resources.gpu.request"),
        ("Misspelt", "environment.replicas.default_worker.resources.gpu.request"),
    ],
    "older-form": [
        ("Ignored", "environment.affinity.podAffinity"),
        ("Misspelt", "environment.tensorflow"),
        ("Misspelt", "environment.tensorflow.default_worker.resources.gpu.request"),
        ("Misspelt", "environment.tensorflow.ps_resources"),
        ("Misspelt", "environment.worker"),
    ],
    "job": [
        ("KubernetesOnly", "environment.persistence"),
        ("Misspelt", "environment.configmap_refs"),
    ],
}


@pytest.mark.parametrize("name", JOBS)
def test_a_documented_example_is_the_job_that_it_describes(name: str) -> None:
    parsed = parse((GOLDEN / f"{name}.yaml").read_bytes(), name=name)
    assert [msgspec.structs.replace(job, warnings=()) for job in parsed.jobs] == list(JOBS[name])
    assert [(p.code, p.path) for p in parsed.problems] == WARNINGS.get(name, [])


@pytest.mark.parametrize("name", JOBS)
def test_its_native_form_says_the_same(name: str) -> None:
    parsed = parse("---\n".join(native_text(job) for job in JOBS[name]))
    assert [p for p in parsed.problems if p.severity is Severity.ERROR] == []
    said = [msgspec.structs.replace(job, warnings=(), format="polyaxon-0") for job in parsed.jobs]
    assert said == list(JOBS[name])


def test_every_document_has_its_jobs() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(JOBS)
