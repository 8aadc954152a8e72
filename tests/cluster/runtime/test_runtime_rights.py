"""The rights that are handed out suffice, and nothing more is handed out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import yaml
from runtime_room import KubeRoom

from muster_core.models import Framework, ReplicaState
from muster_runtimes.kubernetes import Credentials, CredentialsError
from muster_testing.cluster import Cluster
from muster_testing.cluster.cluster import suppress_status
from muster_testing.cluster.credentials import write_kubeconfig

RIGHTS = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "pod-launcher-rbac.yaml"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/muster/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


class _Token(msgspec.Struct):
    token: str


class _TokenRequest(msgspec.Struct):
    status: _Token


async def issue_token(cluster: Cluster, path: str, request: dict[str, Any]) -> str:
    """Ask for a token of a service account, as its administrator."""
    connector = aiohttp.TCPConnector(ssl=cluster.access.context())
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.post(cluster.url + path, json=request) as response,
    ):
        response.raise_for_status()
        return msgspec.json.decode(await response.read(), type=_TokenRequest).status.token


async def kubeconfig_of_the_launcher(cluster: Cluster, file: Path) -> Path:
    """A kubeconfig of the service account of ``deploy``, with the rights that it is given there."""
    async with cluster.connect() as api:
        for document in yaml.safe_load_all(RIGHTS.read_text()):
            with suppress_status(409):
                await api.create(PATHS[document["kind"]], document)
        path = "/api/v1/namespaces/muster/serviceaccounts/pod-launcher/token"
        request: dict[str, Any] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {},
        }
        token = await issue_token(cluster, path, request)
    write_kubeconfig(file, url=cluster.url, ca_file=cluster.ca_file, token=token)
    return file


async def test_the_rights_of_the_deployment_suffice_for_a_whole_life(
    cluster: Cluster, room: KubeRoom, node: str, tmp_path: Path
) -> None:
    room.kubeconfig = await kubeconfig_of_the_launcher(cluster, tmp_path / "kubeconfig")
    async with room.runtime() as runtime:
        async for _ in runtime.node_changes():
            break
        assert node in {seen.name for seen in runtime.nodes()}
        job = room.job(framework=Framework.TENSORFLOW)
        await room.launch(runtime, job, room.replica(), node=node)
        await room.running(runtime, room.replica())
        await runtime.stop(room.replica(), grace_s=1)
        assert (await room.ended(runtime, room.replica())).state is ReplicaState.EXITED
        await runtime.forget(room.job_id)
        for kind in ("pods", "services", "configmaps"):
            await room.until_gone(kind)


async def test_what_was_deleted_by_force_has_its_room_until_it_is_said_to_be_over(
    cluster: Cluster, room: KubeRoom, node: str, tmp_path: Path
) -> None:
    """With the rights of the deployment, too: nobody but pod-launcher says it where a kubelet does not."""
    room.kubeconfig = await kubeconfig_of_the_launcher(cluster, tmp_path / "kubeconfig")
    async with room.runtime() as runtime:
        await room.launch(runtime, room.job(takes_to_end="10m"), room.replica(), node=node)
        await room.running(runtime, room.replica())
        await room.delete_pod("mnist-worker-0", gracePeriodSeconds="0")

        end = await room.ended(runtime, room.replica())
        (pod,) = await room.pods()
        assert (pod.status.phase, pod.metadata.deletion_grace_period_seconds) == ("Failed", 0)
        assert (end.state, end.reason) == (ReplicaState.REJECTED, "the pod was deleted")
        runtime.confirm_recorded(room.job_id, [room.replica()])
        await room.until_gone("pods")


async def test_credentials_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="does not exist"):
        await Credentials(kubeconfig=tmp_path / "missing").load()
    (tmp_path / "odd").write_text("[]")
    with pytest.raises(CredentialsError, match="cannot be used"):
        await Credentials(kubeconfig=tmp_path / "odd").load()


async def test_without_a_service_account_there_are_no_credentials_within_a_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match="service account"):
        await Credentials(kubeconfig=None).load()
