"""A real API server's pods are the same in protobuf and in JSON."""

import asyncio
from collections.abc import AsyncGenerator, Mapping

import msgspec
import pytest
import pytest_asyncio

from muster_runtimes.kubernetes import ApiClient, Credentials, RateLimiter
from muster_runtimes.kubernetes.errors import ApiUnavailable, ObjectNotFound
from muster_runtimes.kubernetes.objects import ObjectList, Pod
from muster_runtimes.kubernetes.reflector import PROTOBUF_EVENTS, ObjectEvent, decode_events
from muster_testing.cluster import Cluster

AT = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:04:06Z"


@pytest_asyncio.fixture
async def api(cluster: Cluster) -> AsyncGenerator[ApiClient]:
    credentials = Credentials(kubeconfig=cluster.kubeconfig)
    await credentials.load()
    api = ApiClient(credentials=credentials, limits=RateLimiter(in_flight=4, per_second=0))
    yield api
    await api.aclose()


@pytest_asyncio.fixture
async def runtime_class(cluster: Cluster, namespace: str) -> AsyncGenerator[str]:
    """The name of a runtime class with an overhead."""
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    overhead = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
    async with cluster.connect() as rest:
        await rest.create(path, {"metadata": {"name": namespace}, "handler": "none", "overhead": overhead})
        yield namespace
        await rest.delete(f"{path}/{namespace}")


def a_pod(name: str, **spec: object) -> dict[str, object]:
    # Without a scheduler, so that only the test changes it.
    return {
        "metadata": {
            "name": name,
            "labels": {"app": name, "empty": ""},
            "annotations": {"note": 'größer\n"quoted"'},
            "finalizers": ["muster.dev/test"],
        },
        "spec": {
            "schedulerName": "none",
            "containers": [
                {
                    "name": "main",
                    "image": "localhost/none:1",
                    "resources": {
                        "requests": {"cpu": "0.5", "memory": "1024Mi"},
                        "limits": {"cpu": "1500m", "example.com/device": "2"},
                    },
                },
                {"name": "beside", "image": "localhost/none:1"},
            ],
            "initContainers": [
                {"name": "before", "image": "localhost/none:1", "resources": {"requests": {"cpu": "2"}}},
                {"name": "aside", "image": "localhost/none:1", "restartPolicy": "Always"},
            ],
            **spec,
        },
    }


def a_status(name: str, **state: object) -> dict[str, object]:
    return {"name": name, "state": state, "image": "none", "imageID": "", "ready": False, "restartCount": 0}


STATUS = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": "größer als erlaubt",
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "No", "message": "m", "lastTransitionTime": AT},
        {"type": "PodScheduled", "status": "True"},
    ],
    "containerStatuses": [
        a_status(
            "main",
            terminated={
                "exitCode": 137,
                "signal": 9,
                "reason": "OOMKilled",
                "message": "last words\n",
                "startedAt": AT,
                "finishedAt": LATER,
            },
        ),
        a_status("beside", waiting={"reason": "ErrImagePull", "message": "none"}),
    ],
    "initContainerStatuses": [
        a_status("before", terminated={"exitCode": 0}),
        a_status("aside", running={"startedAt": AT}),
    ],
}


async def watched(api: ApiClient, path: str, version: str, *, until: Mapping[str, int]) -> dict[str, Pod]:
    """Watch pods in protobuf until they have these versions, and return their last versions."""
    found: dict[str, Pod] = {}
    query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "30"}
    async with (
        asyncio.timeout(30),
        api.stream(path, query=query, idle_timeout_s=30, accept=PROTOBUF_EVENTS) as stream,
    ):
        assert stream.content_type == "application/vnd.kubernetes.protobuf"
        async for event in decode_events(stream, msgspec.json.Decoder(Pod)):
            assert isinstance(event, ObjectEvent)
            pod = event.decode()
            assert (pod.metadata.uid, pod.metadata.resource_version) == (event.uid, event.version)
            found[pod.metadata.name] = pod
            if {name: pod.metadata.version for name, pod in found.items()} == until:
                break
    return found


async def test_pods_are_the_same_in_json_and_protobuf(
    cluster: Cluster, namespace: str, runtime_class: str, api: ApiClient
) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with cluster.connect() as rest:
        await rest.create(path, a_pod("new"))
        await rest.create(path, a_pod("costly", runtimeClassName=runtime_class))
        await rest.create(path, a_pod("whole", resources={"requests": {"cpu": "4"}, "limits": {"cpu": "5"}}))
        await rest.create(path, a_pod("ended"))
        await rest.patch(f"{path}/ended/status", {"status": STATUS})
        await rest.create(path, a_pod("deleted"))
        await rest.delete(f"{path}/deleted")
        listed = {pod.metadata.name: pod for pod in (await api.get(path, ObjectList[Pod])).items or ()}
        try:
            versions = {name: pod.metadata.version for name, pod in listed.items()}
            seen = await watched(api, path, "0", until=versions)
        finally:
            for name in listed:
                await rest.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})

    assert seen == listed
    assert set(seen) == {"new", "costly", "whole", "ended", "deleted"}
    assert seen["costly"].spec.overhead == {"cpu": "250m", "memory": "64Mi"}
    assert seen["whole"].spec.resources["requests"]["cpu"] == "4"
    assert seen["new"].spec.containers[0].resources["requests"]["cpu"] == "500m"
    assert seen["ended"].status.container_statuses[0].state.terminated is not None
    assert seen["ended"].status.init_container_statuses[1].state.running is not None
    assert seen["deleted"].metadata.deletion_timestamp
    assert seen["deleted"].metadata.deletion_grace_period_seconds is not None


async def test_errors_of_a_protobuf_watch_are_decoded(namespace: str, api: ApiClient) -> None:
    with pytest.raises(ApiUnavailable, match="Invalid value"):
        await watched(api, f"/api/v1/namespaces/{namespace}/pods", "none", until={})
    with pytest.raises(ObjectNotFound, match="could not find the requested resource"):
        await watched(api, f"/api/v1/namespaces/{namespace}/nothings", "0", until={})
