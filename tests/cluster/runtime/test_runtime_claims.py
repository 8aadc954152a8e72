"""Claims whose volumes are made once it is known where they are needed: nobody but the launcher knows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from runtime_room import PATIENCE_S, KubeRoom
from test_runtime_rights import kubeconfig_of_the_launcher

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
    """A storage class. Nobody makes its volumes: what is looked at is what its provisioner would be told."""
    async with cluster.connect() as api:
        await api.create(
            CLASSES,
            {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode},
        )
        try:
            yield name
        finally:
            await api.delete(f"{CLASSES}/{name}")


async def claim(room: KubeRoom, name: str, storage_class: str) -> None:
    async with room.cluster.connect() as api:
        path = f"/api/v1/namespaces/{room.namespace}/persistentvolumeclaims"
        await api.create(path, {"metadata": {"name": name}, "spec": asked_for(storage_class)})


def asked_for(storage_class: str) -> dict[str, object]:
    return {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }


async def selected(room: KubeRoom, name: str) -> str:
    async with room.cluster.connect() as api:
        path = f"/api/v1/namespaces/{room.namespace}/persistentvolumeclaims/{name}"
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


async def test_a_claim_is_told_the_node_of_the_first_that_needs_it(
    cluster: Cluster, room: KubeRoom, tmp_path: Any
) -> None:
    room.kubeconfig = await kubeconfig_of_the_launcher(cluster, tmp_path / "kubeconfig")
    nodes = await cluster.add_kwok_nodes(2, cpu="8", memory="32Gi", prefix=room.namespace)
    try:
        async with (
            storage(cluster, f"late-{room.namespace}") as late,
            storage(cluster, f"soon-{room.namespace}", mode="Immediate") as soon,
            room.runtime() as runtime,
        ):
            await claim(room, "data", late)
            await claim(room, "other", soon)
            job = mounting(room.job(workers=2), volume("data"), volume("other"))
            for index, node in enumerate(nodes):
                await room.launch(runtime, job, room.replica(index), node=node)
                await room.running(runtime, room.replica(index))
            assert (await selected(room, "data"), await selected(room, "other")) == (nodes[0], "")
    finally:
        await cluster.remove_nodes(nodes)


async def test_a_claim_of_the_pod_s_own_is_told_as_soon_as_it_is_there(
    cluster: Cluster, room: KubeRoom, node: str
) -> None:
    async with storage(cluster, f"late-{room.namespace}") as late, room.runtime() as runtime:
        own = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": asked_for(late)}}}
        await room.launch(runtime, mounting(room.job(), own), room.replica(), node=node)
        async with asyncio.timeout(PATIENCE_S):
            while await told(room, "mnist-worker-0-scratch") != node:
                await asyncio.sleep(0.1)


async def told(room: KubeRoom, name: str) -> str:
    try:
        return await selected(room, name)
    except RestError:
        return ""


async def test_what_only_a_scheduler_could_bind_is_refused_with_what_to_do(
    cluster: Cluster, room: KubeRoom, node: str
) -> None:
    disks = f"disks-{room.namespace}"
    async with storage(cluster, disks, provisioner="kubernetes.io/no-provisioner"), room.runtime() as runtime:
        await claim(room, "data", disks)
        seen = await room.launch(runtime, mounting(room.job(), volume("data")), room.replica(), node=node)
        assert (seen.state, seen.exit_code) == (ReplicaState.EXITED, 126)
        assert "bind the claim to a volume first" in seen.reason
        assert await room.names("pods") == set()
