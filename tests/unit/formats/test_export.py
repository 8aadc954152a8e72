"""Jobs written in other formats, and the losses that are reported."""

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from muster_core.models import (
    Build,
    Category,
    Convention,
    ElasticPolicy,
    Framework,
    FrameworkOptions,
    Job,
    JobKind,
    PlacementPolicy,
    Problem,
    Rendezvous,
    Resources,
    RestartPolicy,
    RestartScope,
    Role,
    RunPolicy,
    Severity,
    Strategy,
    SuccessPolicy,
    Template,
)
from muster_formats import parse
from muster_formats.export.conversion import TARGETS, convert
from muster_formats.registry import all_formats

TEMPLATE = Template(
    image="trainer",
    command=("python", "train.py"),
    env={"STEPS": "100"},
    requests=Resources(cpu=500, memory=2**30, gpu=2000),
    node_selector={"disk": "ssd"},
)
WORKER = Role(
    name="worker", replicas=2, min=2, max=2, template=TEMPLATE, restart_policy=RestartPolicy.ON_FAILURE
)
PLAIN = Job(name="plain", roles=(WORKER,))
TENSORFLOW = Job(name="tf", framework=Framework.TENSORFLOW, roles=(WORKER,))


def written(job: Job, target: str) -> dict[str, Any]:
    converted = convert([job], target)
    assert not converted.rejected, converted.losses
    return yaml.safe_load(converted.text)


def problems_of(losses: tuple[Problem, ...], severity: Severity) -> set[str]:
    return {loss.path for loss in losses if loss.severity is severity}


def errors(job: Job, target: str) -> set[str]:
    converted = convert([job], target)
    assert converted.text == ""
    assert all(loss.code == "NotConvertible" for loss in converted.losses if loss.severity is Severity.ERROR)
    return problems_of(converted.losses, Severity.ERROR)


def warnings(job: Job, target: str) -> set[str]:
    converted = convert([job], target)
    assert {loss.code for loss in converted.losses} <= {"Lossy"}
    return problems_of(converted.losses, Severity.WARNING)


CONTAINER: dict[str, Any] = {
    "name": "tensorflow",
    "image": "trainer",
    "command": ["python", "train.py"],
    "env": [{"name": "STEPS", "value": "100"}],
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 2}},
}


def test_a_tensorflow_job_is_a_tfjob_in_the_operators_layout() -> None:
    run = RunPolicy(ttl_s=60, active_deadline_s=3600, queue_deadline_s=30)
    job = replace(TENSORFLOW, queue="vision", min_available=2, run=run, labels={"a": "b"})
    document = written(job, "tfjob")
    template = document["spec"]["tfReplicaSpecs"]["Worker"].pop("template")
    assert template == {"spec": {"containers": [CONTAINER], "nodeSelector": {"disk": "ssd"}}}
    assert document == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "tf", "namespace": "default", "labels": {"a": "b"}},
        "spec": {
            "runPolicy": {
                "cleanPodPolicy": "Running",
                "backoffLimit": 3,
                "ttlSecondsAfterFinished": 60,
                "activeDeadlineSeconds": 3600,
                "schedulingPolicy": {"minAvailable": 2, "queue": "vision", "scheduleTimeoutSeconds": 30},
            },
            "tfReplicaSpecs": {"Worker": {"replicas": 2, "restartPolicy": "OnFailure"}},
        },
    }


def test_workers_that_grow_are_written_in_dragons_layout() -> None:
    job = replace(TENSORFLOW, roles=(replace(WORKER, min=1, max=4),))
    spec = written(job, "tfjob")["spec"]
    assert (spec["min-instances"], spec["max-instances"]) == (1, 4)
    assert spec["cleanPodPolicy"] == "Running"
    assert "runPolicy" not in spec


def test_a_lower_worker_minimum_is_written_as_min_available() -> None:
    job = replace(TENSORFLOW, roles=(replace(WORKER, min=1),))
    spec = written(job, "tfjob")["spec"]
    assert spec["runPolicy"]["schedulingPolicy"] == {"minAvailable": 1}
    assert "min-instances" not in spec


def test_an_evaluator_outside_the_cluster_is_written_in_dragons_layout() -> None:
    evaluator = replace(WORKER, name="evaluator", replicas=1, min=1, max=1)
    outside = replace(TENSORFLOW, roles=(WORKER, evaluator))
    inside = replace(outside, options=FrameworkOptions(evaluator_in_cluster=True))
    assert "max-instances" in written(outside, "tfjob")["spec"]
    assert "max-instances" not in written(inside, "tfjob")["spec"]


def test_a_share_of_a_gpu_is_written_as_kubeshare_s_annotations() -> None:
    template = replace(TEMPLATE, requests=Resources(gpu=500, gpu_memory=1024), limits=Resources(gpu=1000))
    job = replace(TENSORFLOW, roles=(replace(WORKER, template=template),))
    document = written(job, "tfjob")
    assert document["metadata"]["annotations"] == {"DRAGON_KUBESHARE": "true"}
    metadata = document["spec"]["tfReplicaSpecs"]["Worker"]["template"]["metadata"]
    assert metadata["annotations"] == {
        "kubeshare/gpu_request": "0.5",
        "kubeshare/gpu_limit": "1.0",
        "kubeshare/gpu_mem": "1024",
    }
    assert errors(replace(PLAIN, roles=job.roles), "batchjob") == {"spec.roles.worker.resources"}


def test_an_elastic_pytorch_job_has_an_elastic_policy() -> None:
    rendezvous = Rendezvous(host="etcd", port=2379, backend="etcd", conf={"timeout": "5"}, max_restarts=3)
    options = FrameworkOptions(processes="2", rendezvous=rendezvous)
    roles = (replace(WORKER, min=1, max=4),)
    spec = written(Job(name="a", framework=Framework.PYTORCH, roles=roles, options=options), "pytorchjob")[
        "spec"
    ]
    assert spec["nprocPerNode"] == "2"
    assert spec["elasticPolicy"] == {
        "minReplicas": 1,
        "maxReplicas": 4,
        "rdzvBackend": "etcd",
        "rdzvHost": "etcd",
        "rdzvPort": 2379,
        "rdzvConf": [{"key": "timeout", "value": "5"}],
        "maxRestarts": 3,
    }


def test_a_horovod_job_is_written_as_an_mpijob_with_a_loss() -> None:
    launcher = replace(WORKER, name="launcher", replicas=1, min=1, max=1)
    job = Job(name="a", framework=Framework.HOROVOD, roles=(launcher, WORKER))
    assert warnings(job, "mpijob") == {"spec.framework"}
    assert written(job, "mpijob")["spec"]["slotsPerWorker"] == 2


def test_a_plain_job_is_written_as_a_parallel_kubernetes_job() -> None:
    spec = written(PLAIN, "batchjob")["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (2, 2, 3)
    assert spec["template"]["spec"]["restartPolicy"] == "OnFailure"
    assert "completionMode" not in spec


def test_an_indexed_job_stays_indexed() -> None:
    container = "{name: a, image: b, env: [{name: X, value: y}]}"
    text = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  completions: 2\n  parallelism: 2\n"
        f"  completionMode: Indexed\n  template: {{spec: {{restartPolicy: Never, containers: [{container}]}}}}\n"
    )
    (job,) = parse(text).jobs
    spec = written(job, "batchjob")["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["template"]["spec"]["containers"][0]["env"] == [{"name": "X", "value": "y"}]


def test_a_trainjob_has_a_trainer_and_overrides_of_its_pods() -> None:
    job = Job(name="a", framework=Framework.PYTORCH, roles=(WORKER,), run=RunPolicy(backoff_limit=6))
    spec = written(job, "trainjob")["spec"]
    assert spec == {
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {
            "numNodes": 2,
            "image": "trainer",
            "command": ["python", "train.py"],
            "env": [{"name": "STEPS", "value": "100"}],
            "resourcesPerNode": {
                "requests": {"cpu": "500m", "memory": "1Gi"},
                "limits": {"nvidia.com/gpu": 2},
            },
        },
        "podTemplateOverrides": [
            {"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"disk": "ssd"}}}
        ],
    }


def test_a_raw_template_is_written_with_only_the_replaced_fields_changed() -> None:
    text = """
apiVersion: muster.dev/v1
kind: Job
metadata: {name: a}
spec:
  framework: tensorflow
  roles:
    worker:
      image: replaced
      env: {A: b}
      template:
        spec:
          volumes: [{name: data, emptyDir: {}}]
          containers:
            - name: tensorflow
              image: trainer
              env: [{name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}]
              volumeMounts: [{name: data, mountPath: /data}]
            - {name: sidecar, image: logs}
"""
    (job,) = parse(text).jobs
    pod = written(job, "tfjob")["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    main, sidecar = pod["containers"]
    assert pod["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert sidecar == {"name": "sidecar", "image": "logs"}
    assert main["image"] == "replaced"
    assert main["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert [variable["name"] for variable in main["env"]] == ["A", "KEY"]


GRAVE: dict[str, tuple[Job, str, set[str]]] = {
    "another framework": (PLAIN, "tfjob", {"spec.framework"}),
    "a service": (replace(TENSORFLOW, kind=JobKind.SERVICE), "tfjob", {"spec.kind"}),
    "a build": (
        replace(TENSORFLOW, kind=JobKind.BUILD, build=Build(steps=("make",))),
        "tfjob",
        {"spec.kind"},
    ),
    "what is built first": (replace(TENSORFLOW, built_by="image"), "tfjob", {"spec.builtBy"}),
    "replicas that differ": (
        replace(TENSORFLOW, roles=(replace(WORKER, overrides={1: Template(image="other")}),)),
        "tfjob",
        {"spec.roles.worker.overrides"},
    ),
    "a role of another name": (
        replace(TENSORFLOW, roles=(replace(WORKER, name="trainer"),)),
        "tfjob",
        {"spec.roles.trainer"},
    ),
    "a role that grows and is no worker": (
        replace(TENSORFLOW, roles=(WORKER, replace(WORKER, name="ps", max=3))),
        "tfjob",
        {"spec.roles.ps"},
    ),
    "workers that grow": (
        Job(name="a", framework=Framework.JAX, roles=(replace(WORKER, max=3),)),
        "jaxjob",
        {"spec.roles.worker"},
    ),
    "a domain that is a must": (
        replace(TENSORFLOW, placement=PlacementPolicy(topology="zone", topology_required=True)),
        "tfjob",
        {"spec.placement.required"},
    ),
    "gpus of one group": (
        replace(TENSORFLOW, placement=PlacementPolicy(gpu_topology=True)),
        "tfjob",
        {"spec.placement.gpuTopology"},
    ),
    "another rule of success": (
        Job(
            name="a", framework=Framework.JAX, roles=(WORKER,), run=RunPolicy(success_policy=SuccessPolicy.ALL_WORKERS)
        ),
        "jaxjob",
        {"spec.run.successPolicy"},
    ),
    "no image": (
        replace(TENSORFLOW, roles=(replace(WORKER, template=Template(command=("true",))),)),
        "tfjob",
        {"spec.roles.worker.image"},
    ),
    "two roles": (replace(PLAIN, roles=(WORKER, replace(WORKER, name="other"))), "batchjob", {"spec.roles"}),
    "a job of roles for a job of none": (TENSORFLOW, "batchjob", {"spec.framework"}),
    "a framework that no runtime is known for": (TENSORFLOW, "trainjob", {"spec.framework"}),
}  # fmt: skip


@pytest.mark.parametrize(("job", "target", "paths"), GRAVE.values(), ids=GRAVE)
def test_losing_an_essential_detail_is_an_error(job: Job, target: str, paths: set[str]) -> None:
    assert errors(job, target) == paths


def test_lost_details_are_warnings() -> None:
    job = replace(
        TENSORFLOW,
        category=Category.JOBS,
        queue="research/vision",
        priority=7,
        preemptible=False,
        options=FrameworkOptions(model_dir="/m", conventions=(Convention.POLYAXON,), parameters={"a": 1}),
        placement=PlacementPolicy(strategy=Strategy.SPREAD, topology="zone"),
        elastic=ElasticPolicy(policy="dragon", cool_down_s=60, step=1),
        run=RunPolicy(restart_scope=RestartScope.GANG, start_timeout_s=60),
    )
    assert warnings(job, "tfjob") == {
        "spec.category",
        "spec.queue",
        "spec.priority",
        "spec.preemptible",
        "spec.options.modelDir",
        "spec.options.conventions",
        "spec.options.parameters",
        "spec.placement.strategy",
        "spec.placement.topology",
        "spec.elastic.policy",
        "spec.elastic.coolDown",
        "spec.elastic.step",
        "spec.run.restartScope",
        "spec.run.startTimeout",
    }
    assert convert([job], "native").losses == ()


def test_several_jobs_are_parts_of_one_document_and_losses_name_theirs() -> None:
    other = replace(TENSORFLOW, name="other", priority=1)
    converted = convert([TENSORFLOW, other], "tfjob")
    assert [job.name for job in parse(converted.text).jobs] == ["tf", "other"]
    (loss,) = converted.losses
    assert loss.message.startswith("other: spec.priority is lost")


def test_if_one_job_cannot_be_written_none_is() -> None:
    converted = convert([TENSORFLOW, PLAIN], "tfjob")
    assert converted.rejected
    assert converted.text == ""


def test_a_build_and_the_job_that_waits_for_it_stay_one_native_document() -> None:
    build = Job(
        name="image",
        kind=JobKind.BUILD,
        build=Build(base="b", steps=("make",)),
        roles=(replace(WORKER, name="build"),),
    )
    job = replace(PLAIN, built_by="image")
    assert parse(convert([build, job], "native").text).jobs == (build, job)


def test_the_targets_have_the_names_of_their_formats() -> None:
    assert TARGETS.keys() <= {known.name for known in all_formats()}
    with pytest.raises(KeyError):
        convert([PLAIN], "cronjob")
