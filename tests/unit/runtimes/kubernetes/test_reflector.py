"""The reflector: protobuf and JSON watches have the same events, and interrupted watches continue.

The bytes are encoded with the messages that decode them; tests/cluster compares with a real server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from muster_runtimes.kubernetes.api_client import ApiClient, ResponseStream
from muster_runtimes.kubernetes.errors import ApiUnavailable
from muster_runtimes.kubernetes.objects import (
    MAGIC,
    PartialObjectMetadata,
    Pod,
    ProtobufError,
    Status,
    decode_pod,
)
from muster_runtimes.kubernetes.reflector import (
    PROTOBUF_EVENTS,
    ObjectEvent,
    Reflector,
    WatchTarget,
    decode_events,
)
from muster_runtimes.kubernetes.v1 import pods_pb2 as pb

PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON = "application/json"

AT = 1_767_323_045
AT_IN_JSON = "2026-01-02T03:04:05Z"

RICH = pb.Pod(
    metadata=pb.ObjectMeta(
        name="mnist-worker-0",
        namespace="team",
        uid="u-1",
        resource_version="12",
        creation_timestamp=pb.Time(seconds=AT),
        deletion_timestamp=pb.Time(seconds=AT + 30),
        deletion_grace_period_seconds=0,
        labels={"muster.dev/job": "mnist", "empty": ""},
        annotations={"note": "größer".encode()},
        finalizers=["muster.dev/exit-recorded"],
    ),
    spec=pb.PodSpec(
        node_name="n1",
        containers=[
            pb.Container(
                name="main",
                resources=pb.ResourceRequirements(
                    limits={"nvidia.com/gpu": pb.Quantity(string="1")},
                    requests={"cpu": pb.Quantity(string="500m"), "memory": pb.Quantity(string="1Gi")},
                ),
            ),
            pb.Container(name="plain", resources=pb.ResourceRequirements()),
        ],
        init_containers=[pb.Container(name="aside", restart_policy="Always")],
        overhead={"cpu": pb.Quantity(string="250m")},
        resources=pb.ResourceRequirements(limits={"cpu": pb.Quantity(string="2")}),
    ),
    status=pb.PodStatus(
        phase="Failed",
        reason=b"Evicted",
        message=b"the node was low on memory",
        conditions=[
            pb.PodCondition(
                type="Ready",
                status="False",
                reason=b"PodFailed",
                message=b"m",
                last_transition_time=pb.Time(seconds=AT),
            ),
            pb.PodCondition(type="PodScheduled", status="True", last_transition_time=pb.Time()),
        ],
        container_statuses=[
            pb.ContainerStatus(
                name="main",
                state=pb.ContainerState(
                    terminated=pb.ContainerStateTerminated(
                        exit_code=137,
                        signal=9,
                        reason=b"OOMKilled",
                        message=b"last words",
                        started_at=pb.Time(seconds=AT),
                        finished_at=pb.Time(seconds=AT + 1),
                    )
                ),
            ),
            pb.ContainerStatus(
                name="plain",
                state=pb.ContainerState(waiting=pb.ContainerStateWaiting(reason=b"ErrImagePull")),
            ),
            pb.ContainerStatus(name="hidden", state=pb.ContainerState()),
        ],
        init_container_statuses=[
            pb.ContainerStatus(
                name="aside",
                state=pb.ContainerState(running=pb.ContainerStateRunning(started_at=pb.Time(seconds=AT))),
            )
        ],
    ),
)

RICH_IN_JSON: dict[str, object] = {
    "metadata": {
        "name": "mnist-worker-0",
        "namespace": "team",
        "uid": "u-1",
        "resourceVersion": "12",
        "creationTimestamp": AT_IN_JSON,
        "deletionTimestamp": "2026-01-02T03:04:35Z",
        "deletionGracePeriodSeconds": 0,
        "labels": {"muster.dev/job": "mnist", "empty": ""},
        "annotations": {"note": "größer"},
        "finalizers": ["muster.dev/exit-recorded"],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [
            {
                "name": "main",
                "resources": {
                    "limits": {"nvidia.com/gpu": "1"},
                    "requests": {"cpu": "500m", "memory": "1Gi"},
                },
            },
            {"name": "plain", "resources": {}},
        ],
        "initContainers": [{"name": "aside", "restartPolicy": "Always", "resources": {}}],
        "overhead": {"cpu": "250m"},
        "resources": {"limits": {"cpu": "2"}},
    },
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "the node was low on memory",
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "PodFailed",
                "message": "m",
                "lastTransitionTime": AT_IN_JSON,
            },
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": None},
        ],
        "containerStatuses": [
            {
                "name": "main",
                "state": {
                    "terminated": {
                        "exitCode": 137,
                        "signal": 9,
                        "reason": "OOMKilled",
                        "message": "last words",
                        "startedAt": AT_IN_JSON,
                        "finishedAt": "2026-01-02T03:04:06Z",
                    }
                },
            },
            {"name": "plain", "state": {"waiting": {"reason": "ErrImagePull"}}},
            {"name": "hidden", "state": {}},
        ],
        "initContainerStatuses": [{"name": "aside", "state": {"running": {"startedAt": AT_IN_JSON}}}],
    },
}


def enveloped(found: pb.Pod) -> bytes:
    return MAGIC + pb.UnknownPod(raw=found).SerializeToString()


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4) + data


def frame(kind: str, found: pb.Pod) -> bytes:
    event = pb.WatchEvent(type=kind, object=pb.RawExtension(raw=enveloped(found)))
    return framed(event.SerializeToString())


def error_frame(status: pb.Status) -> bytes:
    content = MAGIC + pb.UnknownStatus(raw=status).SerializeToString()
    return framed(pb.WatchEvent(type="ERROR", object=pb.RawExtension(raw=content)).SerializeToString())


def pod_named(name: str, version: int) -> pb.Pod:
    return pb.Pod(metadata=pb.ObjectMeta(name=name, uid=name, resource_version=str(version)))


def line(kind: str, found: Mapping[str, object]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": found}) + b"\n"


async def decode(chunks: Sequence[bytes], content_type: str = PROTOBUF) -> list[ObjectEvent[Pod] | Status]:
    async def streamed() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    stream = ResponseStream(content_type, streamed())
    return [event async for event in decode_events(stream, msgspec.json.Decoder(Pod))]


def seen(events: Sequence[ObjectEvent[Pod] | Status]) -> list[tuple[str, str, str]]:
    return [(event.kind, event.uid, event.version) for event in events if isinstance(event, ObjectEvent)]


async def test_a_pod_is_the_same_in_json_and_protobuf() -> None:
    (in_protobuf,) = await decode([frame("ADDED", RICH)])
    (in_json,) = await decode([line("ADDED", RICH_IN_JSON)], JSON)

    assert isinstance(in_protobuf, ObjectEvent)
    assert isinstance(in_json, ObjectEvent)
    assert seen([in_protobuf]) == seen([in_json]) == [("ADDED", "u-1", "12")]
    assert in_protobuf.decode() == in_json.decode() == msgspec.convert(RICH_IN_JSON, Pod)


def test_an_empty_pod_is_the_same_in_json_and_protobuf() -> None:
    assert decode_pod(enveloped(pod_named("one", 3))) == msgspec.convert(
        {"metadata": {"name": "one", "uid": "one", "resourceVersion": "3"}}, Pod
    )


@pytest.mark.parametrize("size", [1, 3, 64, 10_000])
async def test_events_are_decoded_from_pieces_of_any_size(size: int) -> None:
    data = (
        frame("ADDED", RICH)
        + frame("MODIFIED", pod_named("two", 13))
        + frame("DELETED", pod_named("two", 14))
    )
    events = await decode([data[at : at + size] for at in range(0, len(data), size)])
    assert seen(events) == [("ADDED", "u-1", "12"), ("MODIFIED", "two", "13"), ("DELETED", "two", "14")]


async def test_an_incomplete_event_is_dropped() -> None:
    whole = frame("ADDED", pod_named("one", 3))
    for end in range(len(whole)):
        assert seen(await decode([whole, whole[:end]])) == [("ADDED", "one", "3")]


async def test_a_bookmark_has_the_resource_version() -> None:
    bookmark = pb.Pod(metadata=pb.ObjectMeta(resource_version="77"))
    assert seen(await decode([frame("BOOKMARK", bookmark)])) == [("BOOKMARK", "", "77")]


async def test_an_error_event_is_a_status() -> None:
    error = pb.Status(code=410, reason=b"Expired", message=b"too old")
    assert await decode([error_frame(error)]) == [Status(code=410, reason="Expired", message="too old")]


async def test_text_that_is_not_utf_8_is_decoded_with_replacements() -> None:
    pod = pod_named("one", 3)
    pod.metadata.annotations["note"] = b"\xff"
    pod.status.message = b"half of \xc3"
    (event,) = await decode([frame("ADDED", pod)])
    assert isinstance(event, ObjectEvent)
    assert event.decode().metadata.annotations == {"note": "\ufffd"}
    assert event.decode().status.message == "half of \ufffd"


GARBAGE = [
    framed(b"\xff\xff\xff"),
    framed(b""),
    framed(pb.WatchEvent(type="ADDED", object=pb.RawExtension(raw=b"{}")).SerializeToString()),
    framed(pb.WatchEvent(type="ADDED", object=pb.RawExtension(raw=MAGIC + b"\xff")).SerializeToString()),
    frame("ADDED", pb.Pod()),
    (2**26 + 1).to_bytes(4),
    b'{"type": "ADDED"}\n',
]


@pytest.mark.parametrize("data", GARBAGE)
async def test_an_invalid_event_raises_an_error(data: bytes) -> None:
    with pytest.raises(ProtobufError):
        await decode([data])


async def test_an_invalid_timestamp_raises_an_error() -> None:
    pod = pod_named("one", 3)
    pod.metadata.creation_timestamp.seconds = 2**62
    with pytest.raises(ProtobufError):
        decode_pod(enveloped(pod))


async def test_protobuf_is_rejected_for_other_objects_than_pods() -> None:
    async def nothing() -> AsyncIterator[bytes]:
        yield b""

    with pytest.raises(ProtobufError):
        async for _ in decode_events(
            ResponseStream(PROTOBUF, nothing()), msgspec.json.Decoder(PartialObjectMetadata)
        ):
            pass


class Script:
    """A fake ``ApiClient``: a list of version 7 with ``items`` each time, and the scripted watches in turn."""

    def __init__(self, *watches: tuple[str, bytes], items: Sequence[object] = ()) -> None:
        self.items = items
        self.selectors: list[str] = []
        self.watches = list(watches)
        self.stop_requested: list[str] = []
        self.accepted: set[str] = set()

    async def get(self, path: str, kind: type[Any], *, query: Mapping[str, str], **_: object) -> Any:
        self.stop_requested.append("list")
        self.selectors.append(query.get("labelSelector", ""))
        return msgspec.convert({"metadata": {"resourceVersion": "7"}, "items": self.items}, kind)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str], accept: str, **_: object
    ) -> AsyncGenerator[ResponseStream]:
        self.stop_requested.append(query["resourceVersion"])
        self.accepted.add(accept)
        if not self.watches:
            raise ApiUnavailable("not now")
        content_type, data = self.watches.pop(0)

        async def chunks() -> AsyncIterator[bytes]:
            yield data

        yield ResponseStream(content_type, chunks())


@contextlib.asynccontextmanager
async def reflecting(
    script: Script, *known: Pod
) -> AsyncGenerator[asyncio.Queue[tuple[str | None, str | None]]]:
    changes: asyncio.Queue[tuple[str | None, str | None]] = asyncio.Queue()

    def name(pod: Pod | None) -> str | None:
        return pod and f"{pod.metadata.name} {pod.metadata.version}"

    reflector = Reflector(
        api=cast("ApiClient", script),
        target=WatchTarget(path="/pods", event_type=PROTOBUF_EVENTS),
        kind=Pod,
        on_change=lambda before, after: changes.put_nowait((name(before), name(after))),
    )
    for pod in known:
        reflector.put(pod)
        changes.get_nowait()
    task = asyncio.create_task(reflector.run())
    try:
        async with asyncio.timeout(30):
            yield changes
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_an_interrupted_protobuf_watch_continues_after_its_last_event() -> None:
    bookmark = frame("BOOKMARK", pb.Pod(metadata=pb.ObjectMeta(resource_version="12")))
    cut = frame("MODIFIED", pod_named("one", 13))[:-1]
    script = Script(
        (PROTOBUF, frame("ADDED", pod_named("one", 9)) + bookmark + cut),
        (JSON, line("DELETED", {"metadata": {"name": "one", "uid": "one", "resourceVersion": "13"}})),
    )
    async with reflecting(script) as changes:
        assert [await changes.get() for _ in range(3)] == [
            (None, "one 9"),
            ("one 9", "one 13"),
            ("one 13", None),
        ]
    assert script.stop_requested[:3] == ["list", "7", "12"]
    assert script.accepted == {PROTOBUF_EVENTS}


@pytest.mark.parametrize(
    "end", [*GARBAGE, error_frame(pb.Status(code=410, reason=b"Expired", message=b"too old"))]
)
async def test_an_undecodable_event_or_an_expired_version_lists_again(end: bytes) -> None:
    script = Script((PROTOBUF, frame("ADDED", pod_named("one", 9)) + end), (PROTOBUF, b""))
    async with reflecting(script) as changes:
        assert await changes.get() == (None, "one 9")
        while script.stop_requested.count("list") < 2:
            await asyncio.sleep(0.01)
    assert script.stop_requested[:4] == ["list", "7", "list", "7"]


async def test_a_known_version_is_not_decoded() -> None:
    known = msgspec.convert({"metadata": {"name": "one", "uid": "one", "resourceVersion": "9"}}, Pod)
    unreadable = pod_named("one", 9)
    unreadable.metadata.creation_timestamp.seconds = 2**62
    script = Script((PROTOBUF, frame("ADDED", unreadable) + frame("MODIFIED", pod_named("one", 10))))
    async with reflecting(script, known) as changes:
        assert await changes.get() == ("one 9", "one 10")
    assert script.stop_requested[:2] == ["list", "7"]


async def test_a_refresh_adds_what_the_watch_has_not_delivered_yet() -> None:
    unseen = {"metadata": {"name": "two", "uid": "two", "resourceVersion": "6"}}
    script = Script(items=[unseen])
    changes: list[str | None] = []
    reflector = Reflector(
        api=cast("ApiClient", script),
        target=WatchTarget(path="/pods", labels="shard=1", event_type=PROTOBUF_EVENTS),
        kind=Pod,
        on_change=lambda _, after: changes.append(after and after.metadata.name),
    )
    await reflector.refresh("job=a")
    await reflector.refresh("job=a")
    assert (changes, script.selectors) == (["two"], ["job=a", "job=a"])


async def test_an_event_in_json_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    chunk = b"x" * 2**20
    read = 0

    async def endless() -> AsyncGenerator[bytes]:
        nonlocal read
        for _ in range(200):
            read += len(chunk)
            yield chunk

    stream = ResponseStream(JSON, endless())
    with pytest.raises(msgspec.DecodeError, match="more than"):
        async for _ in decode_events(stream, msgspec.json.Decoder(Pod)):
            pass
    assert read < 100 * 2**20
