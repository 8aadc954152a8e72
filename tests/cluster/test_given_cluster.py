import asyncio
import base64
import json
from pathlib import Path

import pytest

from muster_testing.cluster import Cluster, ControlPlane, control_plane_for_tests
from muster_testing.cluster.access import UnusableKubeconfig, read_kubeconfig
from muster_testing.cluster.control_plane import GIVEN_KUBECONFIG
from muster_testing.cluster.rest import RestError
from muster_testing.cluster.views import Node


def a_kubeconfig(folder: Path, *, cluster: dict[str, str], user: dict[str, str]) -> Path:
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    file = folder / "config"
    file.write_text(json.dumps(content))
    return file


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_a_given_cluster_is_left_unchanged(
    own_control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(GIVEN_KUBECONFIG, str(own_control_plane.kubeconfig))

    def use_it() -> tuple[str, list[str]]:
        """Use it without a running event loop, like a session fixture."""
        with control_plane_for_tests(tmp_path / "given") as cluster:
            added = asyncio.run(cluster.add_kwok_nodes(2, cpu="1", memory="1Gi", prefix="guest"))
            return cluster.url, added

    # Programs that this thread starts end with it at the latest.
    url, added = await asyncio.to_thread(use_it)

    assert url == own_control_plane.url
    assert added == ["guest-0", "guest-1"]
    async with own_control_plane.connect() as api:
        assert await api.items("/api/v1/nodes", Node) == []


async def test_a_kubeconfig_with_a_token_is_usable(own_control_plane: ControlPlane, tmp_path: Path) -> None:
    ca = own_control_plane.ca_file.read_text()
    file = a_kubeconfig(
        tmp_path,
        cluster={"certificate-authority-data": encoded(ca), "server": own_control_plane.url},
        user={"token": "wrong"},
    )
    cluster = Cluster(access=read_kubeconfig(file), folder=tmp_path)

    async with cluster.connect() as api:
        with pytest.raises(RestError) as refusal:
            await api.items("/api/v1/nodes", Node)

    assert refusal.value.status == 401


def test_certificates_are_read_inline_or_from_files_next_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("authority")
    file = a_kubeconfig(
        tmp_path,
        cluster={"certificate-authority": "ca.pem"},
        user={"client-certificate-data": encoded("certificate"), "client-key-data": encoded("key")},
    )

    access = read_kubeconfig(file)

    assert access.ca_file.read_text() == "authority"
    assert access.certificate is not None
    assert [file.read_text() for file in access.certificate] == ["certificate", "key"]
    assert {file.stat().st_mode & 0o777 for file in access.certificate} == {0o600}


def test_a_kubeconfig_with_a_credential_plugin_is_rejected(tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, cluster={"certificate-authority-data": encoded("a")}, user={})

    with pytest.raises(UnusableKubeconfig, match="neither a token nor a certificate"):
        read_kubeconfig(file)


def test_a_kubeconfig_without_its_current_context_is_rejected(tmp_path: Path) -> None:
    file = a_kubeconfig(tmp_path, cluster={}, user={})
    file.write_text(file.read_text().replace('"here"', '"elsewhere"', 1))

    with pytest.raises(UnusableKubeconfig, match="elsewhere"):
        read_kubeconfig(file)
