"""What a cluster holds of a job without its record, and the marks of orphans on its objects."""

from __future__ import annotations

import base64
from typing import Any, cast

import msgspec
import pytest

from muster_core.lifecycle import OrphanMark, RetainedJob, RetainedMembership
from muster_core.models import Job, ReplicaState
from muster_runtimes import Observation, ReplicaId
from muster_runtimes.kubernetes import labels
from muster_runtimes.kubernetes.api_client import ApiClient
from muster_runtimes.kubernetes.errors import AlreadyExists
from muster_runtimes.kubernetes.held_jobs import encode_retained, held_job, mark_of
from muster_runtimes.kubernetes.informers import ReplicaStore
from muster_runtimes.kubernetes.objects import ConfigMap, ObjectMeta, PartialObjectMetadata, Pod
from muster_runtimes.kubernetes.writer import NameTaken, ObjectWriter

JOB_ID = "j-aaaaaaaaaaaaaaaa"
JOB = Job(name="mnist", roles=())
RETAINED = RetainedJob(job=JOB, submitter="ann")
ENCODED = msgspec.json.encode(RETAINED)
MEMBERS = '{"attempt":1,"generation":2,"members":{"worker":{"0":"","1":""}}}'
REPLICA = ReplicaId(job_id=JOB_ID, attempt=1, role="worker", index=0)
MARK = OrphanMark(found_at=1_700_000_000_000_000)


def pod(
    version: int = 1, *, mark: OrphanMark | None = None, annotations: dict[str, str] | None = None
) -> Pod:
    known = labels.run_labels(REPLICA, JOB, pool="p", generation=2)
    if mark is not None:
        known[labels.ORPHAN] = labels.encode_mark(mark)
    metadata: dict[str, Any] = {
        "name": "mnist-worker-0",
        "uid": "u",
        "resourceVersion": str(version),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": known,
        "annotations": annotations or {},
    }
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": "n7"}}, Pod)


def observation() -> Observation:
    return Observation(replica=REPLICA, state=ReplicaState.RUNNING, at=5, started_at=5)


def test_a_small_gang_is_held_by_the_annotations_of_its_pods() -> None:
    annotations = {
        labels.RETAINED_JOB: encode_retained(ENCODED),
        labels.MEMBERS: MEMBERS,
        labels.GPUS: "1,3",
    }

    held = held_job(JOB_ID, [observation()], {REPLICA: pod(mark=MARK, annotations=annotations)}, None)

    [run] = held.runs
    assert (run.node, run.gpus, run.generation, run.running_at) == ("n7", (1, 3), 2, 5)
    assert (held.retained, held.mark) == (RETAINED, MARK)
    assert held.membership == RetainedMembership(
        attempt=1, generation=2, members={"worker": {"0": "", "1": ""}}
    )


def test_a_job_with_a_config_map_is_held_by_it() -> None:
    contents = {"job.json": ENCODED, "members.json": MEMBERS.encode()}
    config_map = ConfigMap(
        metadata=ObjectMeta(name="mnist-config"),
        binary_data={key: base64.b64encode(content).decode() for key, content in contents.items()},
    )

    held = held_job(JOB_ID, [observation()], {REPLICA: pod()}, config_map)

    assert held.retained == RETAINED
    assert held.membership is not None
    assert held.membership.generation == 2


@pytest.mark.parametrize("annotations", [{}, {labels.RETAINED_JOB: "&"}, {labels.RETAINED_JOB: "aaaa"}])
def test_a_job_of_an_older_version_is_held_without_its_specification(annotations: dict[str, str]) -> None:
    held = held_job(JOB_ID, [observation()], {REPLICA: pod(annotations=annotations)}, None)

    assert (len(held.runs), held.retained) == (1, None)


def test_a_mark_is_a_label_and_the_earliest_of_several_counts() -> None:
    removed = msgspec.structs.replace(MARK, removal_requested=True)
    later = OrphanMark(found_at=MARK.found_at + 1)
    marked = [pod(mark=mark).metadata for mark in (later, MARK, None)]

    assert mark_of(marked) == MARK
    assert mark_of([*marked, pod(mark=removed).metadata]) == removed
    assert mark_of([pod().metadata]) is None


async def test_a_change_of_the_mark_is_a_change_of_the_job() -> None:
    store = ReplicaStore(clock=lambda: 0, node_unavailable=lambda _: False, start_s=120)
    store.on_pod_change(None, pod(1))
    changes = store.subscribe()
    await anext(changes)

    store.on_pod_change(pod(1), pod(2, mark=MARK))

    assert await anext(changes) == JOB_ID
    # Its usage is reported as that of others.
    assert store.pods_on_node("n7") == []


class _Server:
    """A fake API client on which the name is taken by an orphan's object of a job with the same name."""

    async def create(self, path: str, content: object, kind: object, **_: object) -> PartialObjectMetadata:
        raise AlreadyExists("exists")

    async def get(self, path: str, kind: object, **_: object) -> object:
        found = pod(mark=MARK)
        return found if kind is Pod else PartialObjectMetadata(metadata=found.metadata)


async def test_objects_of_an_orphan_are_not_replaced_by_a_later_job_with_its_name() -> None:
    writer = ObjectWriter(api=cast("ApiClient", _Server()), pool="p")
    later = ReplicaId(job_id="j-bbbbbbbbbbbbbbbb", attempt=1, role="worker", index=0)
    wanted = labels.run_labels(later, JOB, pool="p", generation=1)
    manifest = {
        "metadata": {"name": "mnist-worker-0", "namespace": "default", "labels": wanted, "annotations": {}}
    }

    with pytest.raises(NameTaken, match=f"taken by the orphan {JOB_ID}"):
        await writer.ensure_pod(manifest, later, grace_s=1, before_send=lambda: None)
    with pytest.raises(NameTaken, match=f"taken by the orphan {JOB_ID}"):
        await writer.ensure_config_map(later.job_id, JOB, uid="", members=None, files={})
