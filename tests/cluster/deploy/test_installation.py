"""A real API server takes the installation, and admits its pods under the restricted Pod Security Standard."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from custom_resources import POD_MONITOR, SCALED_OBJECT

from muster_testing.cluster import Cluster, RestError
from muster_testing.cluster.cluster import suppress_status
from muster_testing.cluster.fixtures import need_tools
from muster_testing.cluster.kustomize import KUBERNETES, OPTIONAL, overlay_of, render
from muster_testing.cluster.tools import require
from muster_testing.cluster.views import Named
from muster_testing.conditions import answered

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OVERLAYS = sorted(each.parent.name for each in KUBERNETES.glob("overlays/*/kustomization.yaml"))


class Conditions(msgspec.Struct, frozen=True):
    conditions: list[dict[str, str]] | None = None


class Created(msgspec.Struct, frozen=True):
    metadata: dict[str, Any]
    status: Conditions = Conditions()


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path) -> partial[subprocess.CompletedProcess[str]]:
    """kubectl as an administrator of the cluster."""
    need_tools("kubectl")

    def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [
            str(require("kubectl")),
            f"--kubeconfig={cluster.kubeconfig}",
            f"--cache-dir={tmp_path}/cache",
        ]
        result = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        assert result.returncode == 0 or not check, result.stderr
        return result

    return partial(run)


@pytest_asyncio.fixture
async def custom_resources(cluster: Cluster) -> AsyncGenerator[None, None]:
    """The custom resources of KEDA and of the Prometheus Operator."""
    async with cluster.connect() as api:
        for definition in (SCALED_OBJECT, POD_MONITOR):
            with suppress_status(409):
                await api.create(DEFINITIONS, definition)

        async def established() -> bool:
            found = await api.items(DEFINITIONS, Created)
            served = [
                each
                for each in found
                for condition in each.status.conditions or []
                if (condition["type"], condition["status"]) == ("Established", "True")
            ]
            return len(served) >= 2

        await answered(established)
        yield
        for definition in (SCALED_OBJECT, POD_MONITOR):
            await api.delete(f"{DEFINITIONS}/{definition['metadata']['name']}")


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_the_api_server_takes_every_object_of_an_overlay(
    kubectl: partial[subprocess.CompletedProcess[str]], namespace: str, overlay: str, tmp_path: Path
) -> None:
    folder = tmp_path / "overlay"
    folder.mkdir()
    overlay_of(folder, f"overlays/{overlay}", namespace=namespace)
    applied = kubectl(
        "apply", "-k", str(folder), "--dry-run=server", "--server-side", "--validate=strict", "-o", "name"
    )
    assert len(applied.stdout.split()) == len(render(folder).objects)
    assert "Warning" not in applied.stderr


async def test_the_api_server_takes_every_object_of_the_optional_components(
    kubectl: partial[subprocess.CompletedProcess[str]],
    namespace: str,
    custom_resources: None,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "overlay"
    folder.mkdir()
    overlay_of(folder, "overlays/production", components=OPTIONAL, namespace=namespace)
    applied = kubectl(
        "apply", "-k", str(folder), "--dry-run=server", "--server-side", "--validate=strict", "-o", "name"
    )
    assert "scaledobject.keda.sh/status-tracker" in applied.stdout
    assert "podmonitor.monitoring.coreos.com/muster" in applied.stdout
    assert "Warning" not in applied.stderr


@pytest.mark.parametrize("overlay", OVERLAYS)
async def test_an_applied_overlay_has_all_its_pods_in_a_namespace_that_enforces_the_restricted_standard(
    cluster: Cluster,
    kubectl: partial[subprocess.CompletedProcess[str]],
    namespace: str,
    overlay: str,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "overlay"
    folder.mkdir()
    overlay_of(folder, f"overlays/{overlay}", namespace=namespace)
    workloads = render(folder).workloads().values()
    expected = sorted(
        name
        for each in workloads
        for name in [each.metadata.name] * (1 if each.replicas is None else each.replicas)
    )
    try:
        applied = kubectl("apply", "-k", str(folder))
        # The namespace existed before.
        assert [
            line for line in applied.stderr.splitlines() if f"namespaces/{namespace} is missing" not in line
        ] == []
        async with cluster.connect() as api:
            labels = (await api.get(f"/api/v1/namespaces/{namespace}", Created)).metadata["labels"]
            assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
            with pytest.raises(RestError, match="violates PodSecurity"):
                await api.create(f"/api/v1/namespaces/{namespace}/pods", _privileged_pod())

            async def pods() -> bool:
                found = await api.items(f"/api/v1/namespaces/{namespace}/pods", Named)
                return sorted(_workload_of(each) for each in found) == expected

            await answered(pods, timeout_s=60)
        # It can be repeated.
        again = kubectl("apply", "-k", str(folder))
        # kubectl always replaces the claims of a StatefulSet and the selector of a budget, and calls that a change.
        changed = [line for line in again.stdout.splitlines() if not line.endswith("unchanged")]
        assert {line.partition("/")[0] for line in changed} == {
            "statefulset.apps",
            "poddisruptionbudget.policy",
        }
    finally:
        kubectl("delete", "-k", str(folder), "--wait=false", "--ignore-not-found", check=False)


def _workload_of(pod: Named) -> str:
    return pod.metadata.labels["app.kubernetes.io/name"]


def _privileged_pod() -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "c", "securityContext": {"privileged": True}}
    return {"metadata": {"name": "privileged"}, "spec": {"containers": [container]}}
