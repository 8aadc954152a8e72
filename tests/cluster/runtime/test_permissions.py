"""The deployment's RBAC permissions suffice, and unusable credentials are reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from deployment_permissions import pod_launcher_kubeconfig, stranger_kubeconfig
from kubernetes_harness import KubernetesHarness

from muster_core.models import Framework, ReplicaState
from muster_runtimes import RuntimeCheck
from muster_runtimes.kubernetes import ApiClient, Credentials, CredentialsError, RateLimiter
from muster_runtimes.kubernetes.permissions import PERMISSIONS, missing_permissions
from muster_testing.cluster import Cluster


async def test_the_deployments_permissions_suffice_for_the_life_of_a_job(
    cluster: Cluster, harness: KubernetesHarness, node: str, tmp_path: Path
) -> None:
    harness.kubeconfig = await pod_launcher_kubeconfig(cluster, tmp_path / "kubeconfig")
    async with harness.runtime() as runtime:
        async for _ in runtime.node_changes():
            break
        assert node in {seen.name for seen in runtime.nodes()}
        job = harness.job(framework=Framework.TENSORFLOW)
        await harness.launch(runtime, job, harness.replica(), node=node)
        await harness.running(runtime, harness.replica())
        await runtime.stop(harness.replica(), grace_s=1)
        assert (await harness.ended(runtime, harness.replica())).state is ReplicaState.EXITED
        await runtime.forget(harness.job_id)
        for kind in ("pods", "services", "configmaps"):
            await harness.until_gone(kind)


async def test_a_force_deleted_pod_holds_its_resources_until_pod_launcher_marks_it_failed(
    cluster: Cluster, harness: KubernetesHarness, node: str, tmp_path: Path
) -> None:
    """pod-launcher needs the permission to set the status, in place of a kubelet that does not report."""
    harness.kubeconfig = await pod_launcher_kubeconfig(cluster, tmp_path / "kubeconfig")
    async with harness.runtime() as runtime:
        await harness.launch(runtime, harness.job(takes_to_end="10m"), harness.replica(), node=node)
        await harness.running(runtime, harness.replica())
        await harness.delete_pod("mnist-worker-0", gracePeriodSeconds="0")

        end = await harness.ended(runtime, harness.replica())
        (pod,) = await harness.pods()
        assert (pod.status.phase, pod.metadata.deletion_grace_period_seconds) == ("Failed", 0)
        assert (end.state, end.reason) == (ReplicaState.REJECTED, "the pod was deleted")
        runtime.confirm_recorded(harness.job_id, [harness.replica()])
        await harness.until_gone("pods")


async def test_the_check_of_the_runtime_finds_missing_permissions(
    cluster: Cluster, harness: KubernetesHarness, namespace: str, tmp_path: Path
) -> None:
    harness.kubeconfig = await pod_launcher_kubeconfig(cluster, tmp_path / "kubeconfig")
    async with harness.runtime() as runtime:
        assert await runtime.check() == RuntimeCheck(name="kubernetes")
    harness.kubeconfig = await stranger_kubeconfig(cluster, tmp_path / "stranger", namespace=namespace)
    credentials = Credentials(kubeconfig=harness.kubeconfig)
    await credentials.load()
    api = ApiClient(credentials=credentials, limits=RateLimiter(in_flight=8, per_second=0))
    try:
        missing = await missing_permissions(api, namespace="")
    finally:
        await api.aclose()
    assert len(missing) == len(PERMISSIONS)
    assert {"create pods", "get storageclasses.storage.k8s.io", "create pods/exec"} <= set(map(str, missing))


async def test_unusable_credentials_raise_an_error(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="does not exist"):
        await Credentials(kubeconfig=tmp_path / "missing").load()
    (tmp_path / "odd").write_text("[]")
    with pytest.raises(CredentialsError, match="cannot be used"):
        await Credentials(kubeconfig=tmp_path / "odd").load()


async def test_a_pod_without_a_service_account_has_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match="service account"):
        await Credentials(kubeconfig=None).load()
