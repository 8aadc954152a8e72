"""Claims with WaitForFirstConsumer, whose node the runtime selects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from deployment_permissions import pod_launcher_kubeconfig
from kubernetes_harness import TIMEOUT_S, KubernetesHarness

from muster_core.models import Job, ReplicaState
from muster_runtimes.kubernetes.volume_claims import SELECTED_NODE
from muster_testing.cluster import Cluster
from muster_testing.cluster.rest import RestError

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] = {}


class _Claim(msgspec.Struct):
    metadata: _Metadata


@asynccontextmanager
async def storage(
    cluster: Cluster, name: str, *, mode: str = "WaitForFirstConsumer", provisioner: str = "example.com/disks"
) -> AsyncGenerator[str]:
    """A storage class without a real provisioner; the tests read the annotation that a provisioner would use."""
    async with cluster.connect() as api:
        await api.create(
            CLASSES, {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        )
        try:
            yield name
        finally:
            await api.delete(f"{CLASSES}/{name}")


async def claim(harness: KubernetesHarness, name: str, storage_class: str) -> None:
    async with harness.cluster.connect() as api:
        path = f"/api/v1/namespaces/{harness.namespace}/persistentvolumeclaims"
        await api.create(path, {"metadata": {"name": name}, "spec": asked_for(storage_class)})


def asked_for(storage_class: str) -> dict[str, object]:
    return {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }


async def selected(harness: KubernetesHarness, name: str) -> str:
    async with harness.cluster.connect() as api:
        path = f"/api/v1/namespaces/{harness.namespace}/persistentvolumeclaims/{name}"
        return (await api.get(path, _Claim)).metadata.annotations.get(SELECTED_NODE, "")


def mounting(job: Job, *volumes: dict[str, Any]) -> Job:
    container = {"name": "main", "image": "localhost/none:1", "command": ["train"]}
    role = job.roles[0]
    pod = {
        "metadata": {"annotations": dict(role.template.annotations)},
        "spec": {"containers": [container], "volumes": list(volumes)},
    }
    template = msgspec.structs.replace(role.template, pod=pod)
    return msgspec.structs.replace(job, roles=(msgspec.structs.replace(role, template=template),))


def volume(name: str) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": name}}


async def test_a_claim_gets_the_node_of_its_first_pod(
    cluster: Cluster, harness: KubernetesHarness, tmp_path: Any
) -> None:
    harness.kubeconfig = await pod_launcher_kubeconfig(cluster, tmp_path / "kubeconfig")
    nodes = await cluster.add_kwok_nodes(2, cpu="8", memory="32Gi", prefix=harness.namespace)
    try:
        async with (
            storage(cluster, f"late-{harness.namespace}") as late,
            storage(cluster, f"soon-{harness.namespace}", mode="Immediate") as soon,
            harness.runtime() as runtime,
        ):
            await claim(harness, "data", late)
            await claim(harness, "other", soon)
            job = mounting(harness.job(workers=2), volume("data"), volume("other"))
            for index, node in enumerate(nodes):
                await harness.launch(runtime, job, harness.replica(index), node=node)
                await harness.running(runtime, harness.replica(index))
            assert (await selected(harness, "data"), await selected(harness, "other")) == (nodes[0], "")
    finally:
        await cluster.remove_nodes(nodes)


async def test_the_claim_of_an_ephemeral_volume_gets_the_node_when_it_appears(
    cluster: Cluster, harness: KubernetesHarness, node: str
) -> None:
    async with storage(cluster, f"late-{harness.namespace}") as late, harness.runtime() as runtime:
        own = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": asked_for(late)}}}
        await harness.launch(runtime, mounting(harness.job(), own), harness.replica(), node=node)
        async with asyncio.timeout(TIMEOUT_S):
            while await selected_or_none(harness, "mnist-worker-0-scratch") != node:
                await asyncio.sleep(0.1)


async def selected_or_none(harness: KubernetesHarness, name: str) -> str:
    try:
        return await selected(harness, name)
    except RestError:
        return ""


async def test_a_claim_without_a_provisioner_is_rejected_with_a_remedy(
    cluster: Cluster, harness: KubernetesHarness, node: str
) -> None:
    disks = f"disks-{harness.namespace}"
    async with (
        storage(cluster, disks, provisioner="kubernetes.io/no-provisioner"),
        harness.runtime() as runtime,
    ):
        await claim(harness, "data", disks)
        seen = await harness.launch(
            runtime, mounting(harness.job(), volume("data")), harness.replica(), node=node
        )
        assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 126)
        assert "bind the claim to a volume first" in seen.reason
        assert await harness.names("pods") == set()
