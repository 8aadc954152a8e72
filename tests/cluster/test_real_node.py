import asyncio
from collections.abc import Mapping

from muster_testing.cluster import Cluster
from muster_testing.cluster.images import PYTHON_IMAGE
from muster_testing.cluster.node import RealNode
from muster_testing.cluster.views import Pod
from muster_testing.conditions import answered


def a_python_pod(
    name: str,
    *,
    node: str,
    program: str,
    cpu: str = "100m",
    labels: Mapping[str, str] | None = None,
    spec: Mapping[str, str] | None = None,
) -> dict[str, object]:
    container = {
        "name": "main",
        "image": PYTHON_IMAGE,
        "command": ["python3", "-c", program],
        "resources": {"requests": {"cpu": cpu}},
    }
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {
            "containers": [container],
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            **(spec or {}),
        },
    }


async def until_ended(cluster: Cluster, path: str) -> Pod:
    async with cluster.connect() as api:

        async def look() -> Pod | None:
            pod = await api.get(path, Pod)
            if pod.status.phase in {"Succeeded", "Failed"}:
                return pod
            await asyncio.sleep(0.1)
            return None

        pod = await answered(look, timeout_s=60)
        assert pod is not None
        return pod


async def test_a_python_container_completes_and_has_a_log(
    cluster: Cluster, real_node: RealNode, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    program = "import socket, ssl; print('hello from', socket.gethostname())"
    async with cluster.connect() as api:
        await api.create(pods, a_python_pod("greeting", node=real_node.name, program=program))

        pod = await until_ended(cluster, f"{pods}/greeting")
        log = await api.text(f"{pods}/greeting/log")

    assert pod.status.container_statuses[0].state.terminated is not None
    assert pod.status.container_statuses[0].state.terminated.reason == "Completed"
    assert log == "hello from greeting\n"


async def test_a_failing_program_has_its_exit_code(
    cluster: Cluster, real_node: RealNode, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    async with cluster.connect() as api:
        await api.create(pods, a_python_pod("failing", node=real_node.name, program="raise SystemExit(7)"))

    pod = await until_ended(cluster, f"{pods}/failing")

    assert (pod.status.phase, pod.exit_code) == ("Failed", 7)


async def test_the_kubelet_rejects_a_pod_that_does_not_fit(
    cluster: Cluster, real_node: RealNode, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    async with cluster.connect() as api:
        await api.create(pods, a_python_pod("huge", node=real_node.name, program="pass", cpu="1000"))

    pod = await until_ended(cluster, f"{pods}/huge")

    assert (pod.status.phase, pod.status.reason) == ("Failed", "OutOfcpu")


async def test_pods_of_the_node_can_connect_to_each_other(
    cluster: Cluster, real_node: RealNode, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    serve = (
        "import socket; s = socket.create_server(('', 7000)); c, _ = s.accept(); print(c.recv(9).decode())"
    )
    async with cluster.connect() as api:
        await api.create(pods, a_python_pod("server", node=real_node.name, program=serve))

        async def address() -> str:
            return (await api.get(f"{pods}/server", Pod)).status.pod_ip

        where = await answered(address, timeout_s=60)
        call = f"""
import socket, time
give_up = time.monotonic() + 30
while True:
    try:
        socket.create_connection(("{where}", 7000), timeout=5).sendall(b"good news")
        break
    except OSError:
        if time.monotonic() > give_up:
            raise
        time.sleep(0.1)
"""
        await api.create(pods, a_python_pod("caller", node=real_node.name, program=call))

        caller, server = (
            await until_ended(cluster, f"{pods}/caller"),
            await until_ended(cluster, f"{pods}/server"),
        )
        log = await api.text(f"{pods}/server/log")

    assert (caller.exit_code, server.exit_code, log) == (0, 0, "good news\n")


async def test_pods_resolve_the_names_of_a_headless_service(
    cluster: Cluster, real_node: RealNode, namespace: str
) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    service = {"clusterIP": "None", "selector": {"gang": "gang"}, "publishNotReadyAddresses": True}
    find = f"""
import socket, time
give_up = time.monotonic() + 30
while True:
    try:
        print([socket.gethostbyname(name) for name in ("a.gang", "b.gang", "b.gang.{namespace}.svc.cluster.local")])
        break
    except OSError:
        if time.monotonic() > give_up:
            raise
        time.sleep(0.1)
time.sleep(1)
"""
    async with cluster.connect() as api:
        await api.create(
            f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "gang"}, "spec": service}
        )
        for name in ("a", "b"):
            host = {"hostname": name, "subdomain": "gang"}
            pod = a_python_pod(name, node=real_node.name, program=find, spec=host, labels={"gang": "gang"})
            await api.create(pods, pod)

        a, b = await until_ended(cluster, f"{pods}/a"), await until_ended(cluster, f"{pods}/b")
        log = await api.text(f"{pods}/a/log")

    where = [a.status.pod_ip, b.status.pod_ip, b.status.pod_ip]
    assert log == f"{where}\n"
