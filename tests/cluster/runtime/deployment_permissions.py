"""The service account of the deployment, with its RBAC permissions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from muster_testing.cluster import Cluster
from muster_testing.cluster.access import write_kubeconfig
from muster_testing.cluster.cluster import suppress_status

RIGHTS = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes" / "base" / "pod-launcher-rbac.yaml"
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
    """Create a token of a service account."""
    connector = aiohttp.TCPConnector(ssl=cluster.access.context())
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        session.post(cluster.url + path, json=request) as response,
    ):
        response.raise_for_status()
        return msgspec.json.decode(await response.read(), type=_TokenRequest).status.token


async def pod_launcher_kubeconfig(cluster: Cluster, file: Path) -> Path:
    """A kubeconfig of the service account in ``deploy``, with its permissions."""
    async with cluster.connect() as api:
        with suppress_status(409):
            await api.create(PATHS["Namespace"], {"metadata": {"name": "muster"}})
        with suppress_status(409):
            await api.create(PATHS["ServiceAccount"], {"metadata": {"name": "pod-launcher"}})
        for document in yaml.safe_load_all(RIGHTS.read_text()):
            with suppress_status(409):
                await api.create(PATHS[document["kind"]], document)
    return await _kubeconfig_of(cluster, file, namespace="muster", account="pod-launcher")


async def stranger_kubeconfig(cluster: Cluster, file: Path, *, namespace: str) -> Path:
    """A kubeconfig of a service account without permissions."""
    async with cluster.connect() as api:
        await api.create(
            f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "stranger"}}
        )
    return await _kubeconfig_of(cluster, file, namespace=namespace, account="stranger")


async def _kubeconfig_of(cluster: Cluster, file: Path, *, namespace: str, account: str) -> Path:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request: dict[str, Any] = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {},
    }
    token = await issue_token(cluster, path, request)
    write_kubeconfig(file, url=cluster.url, ca_file=cluster.ca_file, token=token)
    return file
