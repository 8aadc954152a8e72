import asyncio

from muster_testing.cluster import Cluster, ControlPlane
from muster_testing.cluster.rest import RestError
from muster_testing.cluster.views import Named, Node, Pod
from muster_testing.conditions import answered


def a_pod(name: str, *, node: str = "", **annotations: str) -> dict[str, object]:
    container = {"name": "main", "image": "localhost/none:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "metadata": {
            "name": name,
            "annotations": {
                f"kwok.muster.dev/{key.replace('_', '-')}": value for key, value in annotations.items()
            },
        },
        "spec": {"containers": [container], "restartPolicy": "Never", **({"nodeName": node} if node else {})},
    }


async def until_phase(cluster: Cluster, namespace: str, name: str, phase: str) -> Pod:
    async with cluster.connect() as api:

        async def look() -> Pod | None:
            pod = await api.get(f"/api/v1/namespaces/{namespace}/pods/{name}", Pod)
            return pod if pod.status.phase == phase else None

        pod = await answered(look, timeout_s=60)
        assert pod is not None
        return pod


async def test_added_nodes_have_the_given_capacity(cluster: Cluster) -> None:
    names = await cluster.add_kwok_nodes(
        3, cpu="8", memory="32Gi", gpus=4, labels={"zone": "a"}, prefix="offering"
    )

    async with cluster.connect() as api:
        nodes = [await api.get(f"/api/v1/nodes/{name}", Node) for name in names]
    await cluster.remove_nodes(names)

    assert names == ["offering-0", "offering-1", "offering-2"]
    assert all(node.ready for node in nodes)
    assert nodes[0].status.allocatable == {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4", "pods": "110"}
    assert nodes[0].metadata.labels["zone"] == "a"


async def test_a_pod_with_a_node_name_runs_without_a_scheduler(cluster: Cluster, namespace: str) -> None:
    (node,) = await cluster.add_kwok_nodes(1, cpu="8", memory="32Gi", prefix="running")
    async with cluster.connect() as api:
        await api.create(f"/api/v1/namespaces/{namespace}/pods", a_pod("one", node=node))

    pod = await until_phase(cluster, namespace, "one", "Running")

    assert pod.spec.node_name == node
    assert pod.status.pod_ip


async def test_annotations_control_how_a_simulated_pod_ends(cluster: Cluster, namespace: str) -> None:
    (node,) = await cluster.add_kwok_nodes(1, cpu="8", memory="32Gi", prefix="ending")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    async with cluster.connect() as api:
        await api.create(pods, a_pod("good", node=node, run_for="100ms"))
        await api.create(pods, a_pod("bad", node=node, run_for="100ms", exit_code="3"))
        await api.create(pods, a_pod("refused", node=node, reject="OutOfcpu"))

    good = await until_phase(cluster, namespace, "good", "Succeeded")
    bad = await until_phase(cluster, namespace, "bad", "Failed")
    refused = await until_phase(cluster, namespace, "refused", "Failed")

    assert (good.exit_code, bad.exit_code, refused.exit_code) == (0, 3, None)
    assert refused.status.reason == "OutOfcpu"


async def test_a_deleted_pod_with_a_finalizer_reports_its_end_before_it_goes(
    cluster: Cluster, namespace: str
) -> None:
    (node,) = await cluster.add_kwok_nodes(1, cpu="8", memory="32Gi", prefix="held")
    path = f"/api/v1/namespaces/{namespace}/pods/held"
    pod = a_pod("held", node=node)
    async with cluster.connect() as api:
        await api.create(path.rpartition("/")[0], pod)
        await api.patch(path, {"metadata": {"finalizers": ["muster.dev/record"]}})
        await until_phase(cluster, namespace, "held", "Running")
        await api.delete(path)

        ended = await until_phase(cluster, namespace, "held", "Failed")
        await api.patch(path, {"metadata": {"finalizers": None}})

        assert ended.exit_code == 143
        assert await answered(lambda: gone(cluster, path))


async def test_kube_scheduler_starts_whole_gangs(own_control_plane: ControlPlane) -> None:
    await own_control_plane.add_kwok_nodes(2, cpu="1", memory="4Gi")
    await own_control_plane.start_scheduler()
    groups, pods = (
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups",
        "/api/v1/namespaces/default/pods",
    )
    async with own_control_plane.connect() as api:
        for gang, size in (("big", 3), ("fits", 2)):
            policy = {"gang": {"minCount": size}}
            await api.create(groups, {"metadata": {"name": gang}, "spec": {"schedulingPolicy": policy}})
            for index in range(size):
                pod = a_pod(f"{gang}-{index}")
                spec = pod["spec"]
                assert isinstance(spec, dict)
                spec["schedulingGroup"] = {"podGroupName": gang}
                await api.create(pods, pod)

        for name in ("fits-0", "fits-1"):
            await until_phase(own_control_plane, "default", name, "Running")
        big = [await api.get(f"{pods}/big-{index}", Pod) for index in range(3)]

    assert [pod.spec.node_name for pod in big] == ["", "", ""]


async def test_the_api_server_keeps_its_objects_across_a_restart(own_control_plane: ControlPlane) -> None:
    await own_control_plane.create_namespace("kept")
    own_control_plane.kill_api_server()

    await own_control_plane.restart_api_server()

    async with own_control_plane.connect() as api:
        assert (await api.get("/api/v1/namespaces/kept", Named)).metadata.name == "kept"


async def test_deleting_a_namespace_deletes_its_objects(cluster: Cluster) -> None:
    (node,) = await cluster.add_kwok_nodes(1, cpu="8", memory="32Gi", prefix="leaving")
    await cluster.create_namespace("leaving")
    async with cluster.connect() as api:
        await api.create("/api/v1/namespaces/leaving/pods", a_pod("one", node=node))

    await cluster.delete_namespace("leaving")

    assert await answered(lambda: gone(cluster, "/api/v1/namespaces/leaving"), timeout_s=60)


async def gone(cluster: Cluster, path: str) -> bool:
    async with cluster.connect() as api:
        try:
            await api.get(path, Named)
        except RestError as error:
            return error.status == 404
    await asyncio.sleep(0.1)
    return False
