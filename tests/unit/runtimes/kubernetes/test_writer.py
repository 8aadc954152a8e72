"""The manifest hash that the writer adds to a pod."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from muster_runtimes import ReplicaId
from muster_runtimes.kubernetes.api_client import ApiClient
from muster_runtimes.kubernetes.labels import MANIFEST_HASH
from muster_runtimes.kubernetes.objects import ObjectMeta, PartialObjectMetadata
from muster_runtimes.kubernetes.writer import ObjectWriter

_LOOKALIKE = f'"{MANIFEST_HASH}":""'


class _Server:
    """A fake API client that accepts every pod."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def create(self, path: str, content: object, kind: object, **_: object) -> PartialObjectMetadata:
        self.bodies.append(msgspec.json.encode(content))
        return PartialObjectMetadata(metadata=ObjectMeta(name="a-worker-0"))


def _pod(*, node: str = "n1", labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "a-worker-0",
            "namespace": "team",
            "labels": labels or {},
            # They sort before and after the hash, and look like it.
            "annotations": {"a": _LOOKALIKE, "zone": _LOOKALIKE},
        },
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "i", "args": [_LOOKALIKE]}]},
    }


async def _asked(*pods: dict[str, Any]) -> list[dict[str, Any]]:
    server = _Server()
    writer = ObjectWriter(api=cast("ApiClient", server), pool="default")
    replica = ReplicaId(job_id="j-aaaaaaaaaaaaaaaa", attempt=1, role="worker", index=0)
    for pod in pods:
        await writer.ensure_pod(pod, replica, grace_s=0, before_send=lambda: None)
    return [msgspec.json.decode(body) for body in server.bodies]


async def test_only_the_hash_is_added_to_the_manifest() -> None:
    (sent,) = await _asked(_pod())
    digest = sent["metadata"]["annotations"].pop(MANIFEST_HASH)
    assert len(digest) == 16
    assert sent == _pod()


async def test_the_hash_depends_on_the_content_and_not_on_its_order() -> None:
    pods = [
        _pod(labels={"a": "1", "b": "2"}),
        _pod(labels={"b": "2", "a": "1"}),
        _pod(labels={"a": "1", "b": "2"}, node="n2"),
    ]
    first, again, other = [sent["metadata"]["annotations"][MANIFEST_HASH] for sent in await _asked(*pods)]
    assert first == again != other


async def test_a_users_annotation_with_the_hashs_name_is_replaced() -> None:
    pod = _pod()
    pod["metadata"]["annotations"][MANIFEST_HASH] = "theirs"
    plain, with_theirs = await _asked(_pod(), pod)
    assert plain == with_theirs
