"""Pod manifests: Muster's decisions are added to the user's template, and the rest of it stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster_core.frameworks import ConfigFile
from muster_core.models import Framework, Job, Port, Resources, Role, Template
from muster_formats import parse
from muster_runtimes import Launch, ReplicaId
from muster_runtimes.kubernetes.manifests import (
    PodOptions,
    config_map_owner,
    needs_config_map,
    node_owner,
    pod_manifest,
    unsupported_reason,
)

GOLDEN = Path(__file__).with_name("golden")
OPTIONS = PodOptions(pool="local")

PYTORCHJOB = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: bert, namespace: research, labels: {project: nlp}}
spec:
  pytorchReplicaSpecs:
    Master:
      template:
        metadata: {labels: {tier: gold}, annotations: {note: kept}}
        spec:
          schedulerName: volcano
          priorityClassName: high
          serviceAccountName: trainer
          imagePullSecrets: [{name: registry}]
          securityContext: {runAsUser: 1000}
          tolerations: [{key: dedicated, operator: Exists, effect: NoSchedule}]
          volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
          initContainers: [{name: fetch, image: example.com/fetch}]
          containers:
            - name: sidecar
              image: example.com/sidecar
            - name: pytorch
              image: example.com/bert
              command: [python, train.py]
              env:
                - {name: LR, value: "0.1"}
                - {name: WHERE, value: "$(MASTER_ADDR)"}
                - {name: TOKEN, valueFrom: {secretKeyRef: {name: hub, key: token}}}
              volumeMounts: [{name: data, mountPath: /data}]
              resources: {limits: {nvidia.com/gpu: 2, cpu: 4}}
"""


def launch(job: Job, role: str = "worker", *, env: dict[str, str] | None = None, node: str = "n1") -> Launch:
    found = job.role(role)
    assert found is not None
    template = found.template
    return Launch(
        replica=ReplicaId(job_id="j-aaaaaaaaaaaaaaaa", attempt=2, role=role, index=0, restart=1),
        name=f"{job.name}-{role}-0",
        node=node,
        template=template,
        env={"MUSTER_ROLE": role, **(env or {}), **template.env},
    )


def bare(**template: Any) -> Job:
    role = Role(name="worker", replicas=1, min=1, max=1, template=Template(**template))
    return Job(name="sweep", roles=(role,))


def fixed(
    *,
    workers: int = 1,
    least: int = 0,
    most: int = 0,
    framework: Framework = Framework.PLAIN,
    ports: tuple[Port, ...] = (),
) -> Job:
    role = Role(
        name="worker",
        replicas=workers,
        min=least or workers,
        max=most or workers,
        template=Template(image="example.com/sweep", ports=ports),
    )
    return Job(name="sweep", framework=framework, roles=(role,))


def made(job: Job, role: str = "worker", *, env: dict[str, str] | None = None) -> dict[str, Any]:
    return pod_manifest(
        launch(job, role, env=env), job, owner=config_map_owner(job.name, "uid"), files={}, options=OPTIONS
    )


def document(text: str) -> Job:
    (job,) = parse(text).jobs
    return job


@pytest.mark.parametrize("name", ["pytorchjob", "native"])
def test_a_pod_manifest_equals_its_golden_file(name: str) -> None:
    jobs: dict[str, tuple[Job, str, dict[str, str]]] = {
        "pytorchjob": (document(PYTORCHJOB), "master", {"MASTER_ADDR": "bert-master-0.research.svc"}),
        "native": (
            bare(
                image="example.com/sweep",
                command=("python", "sweep.py"),
                env={"SEED": "7"},
                requests=Resources(cpu=500, memory=2**30, gpu=1000),
                node_selector={"zone": "a"},
            ),
            "worker",
            {},
        ),
    }
    job, role, env = jobs[name]
    pod = pod_manifest(
        launch(job, role, env=env),
        job,
        owner=config_map_owner(job.name, "uid") if needs_config_map(job) else node_owner("n1", "uid"),
        members=None if needs_config_map(job) else '{"attempt":2}',
        files={"hostfile": ConfigFile(content=b"")} if role == "master" else {},
        options=OPTIONS,
    )
    assert json.loads((GOLDEN / f"{name}.json").read_text()) == pod


def test_musters_fields_override_the_template() -> None:
    spec = made(document(PYTORCHJOB), "master")["spec"]
    assert (spec["nodeName"], spec["restartPolicy"]) == ("n1", "Never")
    assert {"schedulerName", "priorityClassName"}.isdisjoint(spec)


def test_other_fields_of_the_template_are_kept() -> None:
    spec = made(document(PYTORCHJOB), "master")["spec"]
    assert spec["serviceAccountName"] == "trainer"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["securityContext"] == {"runAsUser": 1000}
    assert spec["volumes"][0]["persistentVolumeClaim"] == {"claimName": "data"}
    assert [container["name"] for container in spec["initContainers"]] == ["fetch"]


def test_the_template_is_not_modified() -> None:
    job = document(PYTORCHJOB)
    before = msgspec.json.encode(job)
    made(job, "master")
    assert msgspec.json.encode(job) == before


def test_musters_variables_precede_the_variables_that_refer_to_them() -> None:
    pod = made(document(PYTORCHJOB), "master", env={"MASTER_ADDR": "here", "LR": "ignored"})
    main = pod["spec"]["containers"][1]
    names = [variable["name"] for variable in main["env"]]
    assert names.index("MASTER_ADDR") < names.index("WHERE")
    assert {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}} in main["env"]
    assert "env" not in pod["spec"]["containers"][0]


def test_dollar_signs_in_values_are_escaped() -> None:
    pod = made(bare(image="i"), env={"TOLD": "a$(B)$$"})
    assert {"name": "TOLD", "value": "a$$(B)$$$$"} in pod["spec"]["containers"][0]["env"]


def test_a_pod_that_tolerates_everything_gets_no_further_tolerations() -> None:
    job = bare(image="i")
    template = msgspec.structs.replace(
        job.roles[0].template,
        pod={"spec": {"containers": [{"name": "c"}], "tolerations": [{"operator": "Exists"}]}},
    )
    job = msgspec.structs.replace(job, roles=(msgspec.structs.replace(job.roles[0], template=template),))
    assert made(job)["spec"]["tolerations"] == [{"operator": "Exists"}]


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (bare(command=("true",)), "has no image"),
        (bare(image="i", requests=Resources(gpu=500)), "a fraction of a GPU"),
        (bare(image="i", pod={"spec": {"containers": [{"name": "c"}], "resourceClaims": [{}]}}), "DRA"),
        (msgspec.structs.replace(bare(image="i"), name="n" * 60), "longer than 63"),
    ],
)
def test_an_unsupported_launch_has_a_reason(job: Job, words: str) -> None:
    assert words in unsupported_reason(launch(job))


def test_the_main_container_is_the_one_with_the_frameworks_name() -> None:
    job = msgspec.structs.replace(document(PYTORCHJOB), framework=Framework.PYTORCH)
    annotations = made(job, "master")["metadata"]["annotations"]
    assert annotations["kubectl.kubernetes.io/default-container"] == "pytorch"


@pytest.mark.parametrize(
    ("job", "needs"),
    [
        (fixed(), False),
        (fixed(workers=16), False),
        (fixed(workers=17), True),
        (fixed(workers=3, least=2), True),
        (fixed(workers=3, most=4), True),
        (fixed(framework=Framework.PYTORCH), True),
        (fixed(ports=(Port(name="http", number=80),)), True),
    ],
    ids=["one pod", "small", "large", "may shrink", "may grow", "of a framework", "listens"],
)
def test_a_config_map_is_needed_for_elastic_addressed_and_large_jobs(job: Job, needs: bool) -> None:
    assert needs_config_map(job) is needs
