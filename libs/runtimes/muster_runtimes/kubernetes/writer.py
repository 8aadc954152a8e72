"""The writes of the runtime, each of which may be repeated: what is there already is taken for done, and nobody else's object is touched.

A name may be taken by an object of an earlier job of the same name, or of an earlier run of the same replica: it is deleted by its uid and
makes way. Of two jobs of one name only one has not ended, the scheduler sees to that. But ``a-b`` with a role ``c`` and ``a`` with a role
``b-c`` want the same names, and both may be running: there nobody makes way, and who came later goes back to the queue.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec

from muster_core.frameworks import ConfigFile
from muster_core.models import Job
from muster_runtimes.kubernetes.api_client import (
    METADATA_ONLY,
    STRATEGIC_MERGE,
    AlreadyExists,
    ApiClient,
    Conflict,
    ObjectNotFound,
    OutcomeUnknown,
    RequestRejected,
)
from muster_runtimes.kubernetes.labels import (
    FINALIZER,
    JOB,
    JOB_ID,
    MANIFEST_HASH,
    POOL,
    of_job,
    of_start,
    replica_of,
)
from muster_runtimes.kubernetes.manifests import config_map_manifest, config_map_name
from muster_runtimes.kubernetes.objects import ObjectMeta, PartialObjectMetadata, Pod, PodSpec
from muster_runtimes.protocols import ReplicaId

log = logging.getLogger(__name__)

_TRIES = 4
_UNCHECKED = "fieldValidation=Ignore"
"""Looking for fields that it does not know costs the API server a second decoding, and nobody here reads what it would say of them."""
_BLANK = f'"{MANIFEST_HASH}":""'.encode()


class NameTerminating(Exception):
    """The name is taken by an object that is on its way out: to be tried again soon."""


class NameTaken(Exception):
    """The name is taken by an object that is not Muster's, or another job's; the message names it."""


class ObjectWriter:
    """Writes objects of one pool."""

    def __init__(self, *, api: ApiClient, pool: str) -> None:
        self._api = api
        self._pool = pool

    async def config(
        self, job_id: str, job: Job, *, uid: str, members: bytes | None, files: dict[str, ConfigFile]
    ) -> str:
        """Have the job's config map hold this; its uid. ``uid`` is the one that is known (empty: none).

        Raises ``NameTaken``, and ``RequestRejected`` or ``ObjectNotFound`` where the namespace does not take it.
        """
        content = config_map_manifest(job_id, job, pool=self._pool, members=members, files=files)
        folder = collection_path(job.namespace, "configmaps")
        path = f"{folder}/{config_map_name(job.name)}"
        for _ in range(_TRIES):
            try:
                if not uid:
                    return (
                        await self._api.create(folder, content, PartialObjectMetadata, accept=METADATA_ONLY)
                    ).metadata.uid
                change = {"metadata": {"uid": uid}, "binaryData": content["binaryData"]}
                return (
                    await self._api.patch(path, change, PartialObjectMetadata, accept=METADATA_ONLY)
                ).metadata.uid
            except (AlreadyExists, OutcomeUnknown):
                uid = await self._own_uid(path, content["metadata"]["labels"])
            except (Conflict, ObjectNotFound):
                if not uid:
                    raise
                uid = ""
        raise NameTerminating(path)

    async def service(self, content: dict[str, Any]) -> None:
        """Have this service. Raises ``NameTaken``, ``NameTerminating``, ``RequestRejected``."""
        metadata = content["metadata"]
        folder = collection_path(metadata["namespace"], "services")
        for _ in range(_TRIES):
            try:
                await self._api.create(folder, content, PartialObjectMetadata, accept=METADATA_ONLY)
            except (AlreadyExists, OutcomeUnknown):
                if not await self._own_uid(f"{folder}/{metadata['name']}", metadata["labels"]):
                    continue
            return
        raise NameTerminating(metadata["name"])

    async def pod(
        self, content: dict[str, Any], replica: ReplicaId, *, grace_s: int, before_send: Callable[[], None]
    ) -> Pod:
        """Have this pod, and answer it as it stands. ``before_send`` is called just before it is asked for, and may raise instead.

        Raises ``NameTaken``, ``NameTerminating``, ``RequestRejected``.
        """
        metadata = content["metadata"]
        stop_requested, digest = _with_digest(content)
        folder = collection_path(metadata["namespace"], "pods")
        path = f"{folder}/{metadata['name']}"
        for _ in range(_TRIES):
            try:
                # What was asked for is known: only who it has become is told.
                created = await self._api.create(
                    f"{folder}?{_UNCHECKED}",
                    stop_requested,
                    PartialObjectMetadata,
                    accept=METADATA_ONLY,
                    before_send=before_send,
                )
                return Pod(metadata=created.metadata, spec=_spec_of(content))
            except (AlreadyExists, OutcomeUnknown):
                pass
            try:
                found = await self._api.get(path, Pod)
            except ObjectNotFound:
                continue
            if (
                replica_of(found.metadata) == replica
                and found.metadata.annotations.get(MANIFEST_HASH) == digest
            ):
                return found
            self._check_makes_way(found.metadata, metadata["labels"][JOB])
            if found.metadata.deletion_timestamp:
                raise NameTerminating(path)
            await self.delete_pod(found.metadata, grace_s=grace_s)
        raise NameTerminating(path)

    async def delete_pod(self, metadata: ObjectMeta, *, grace_s: int | None) -> None:
        """Ask for a pod's end, within ``grace_s`` seconds (0: its node is not asked; None: the pod's own grace)."""
        grace = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        options = {**grace, "preconditions": {"uid": metadata.uid}}
        path = _path(metadata, "pods")
        try:
            await self._api.delete(path, options=options)
        except ObjectNotFound:
            return
        except Conflict:
            if await self._is_there(path, metadata.uid):
                raise

    async def delete_start(self, replica: ReplicaId, namespace: str, *, generation: int) -> None:
        """Ask for the end of all pods that were to start together with a replica, in one request."""
        query = {"labelSelector": of_start(replica, generation)}
        with suppress(ObjectNotFound):
            await self._api.delete(collection_path(namespace, "pods"), query=query)

    async def close(self, metadata: ObjectMeta) -> None:
        """Say that a pod is over of which no kubelet will."""
        change = {"metadata": {"uid": metadata.uid}, "status": {"phase": "Failed"}}
        await self._change(metadata, "/status", change)

    async def release(self, metadata: ObjectMeta) -> None:
        """Let a pod go whose end is on record."""
        change = {"metadata": {"uid": metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
        await self._change(metadata, "", change)

    async def delete_job_objects(self, job_id: str, namespace: str) -> None:
        """Remove the pods and services of a job, which have ended."""
        query = {"labelSelector": of_job(job_id)}
        for kind in ("pods", "services"):
            try:
                await self._api.delete(collection_path(namespace, kind), query=query)
            except ObjectNotFound:
                continue

    async def delete_config_map(self, metadata: ObjectMeta) -> None:
        """Remove a job's config map, and with it whatever it still owns."""
        options = {"preconditions": {"uid": metadata.uid}, "propagationPolicy": "Background"}
        path = _path(metadata, "configmaps")
        try:
            await self._api.delete(path, options=options)
        except ObjectNotFound:
            return
        except Conflict:
            if await self._is_there(path, metadata.uid):
                raise

    async def _change(self, metadata: ObjectMeta, subresource: str, change: dict[str, Any]) -> None:
        path = _path(metadata, "pods")
        try:
            await self._api.patch(
                path + subresource, change, PartialObjectMetadata, patch=STRATEGIC_MERGE, accept=METADATA_ONLY
            )
        except ObjectNotFound:
            return
        except Conflict:
            if await self._is_there(path, metadata.uid):
                raise

    async def _is_there(self, path: str, uid: str) -> bool:
        """Whether the object is there still: a conflict may say that it is another one, or merely that something else was written."""
        try:
            return (
                await self._api.get(path, PartialObjectMetadata, accept=METADATA_ONLY)
            ).metadata.uid == uid
        except ObjectNotFound:
            return False

    def _check_makes_way(self, metadata: ObjectMeta, job: str) -> None:
        """Raise ``NameTaken`` unless the object is of this pool and of a job called ``job``."""
        config_map_owner = metadata.labels.get(JOB, "")
        if metadata.labels.get(POOL) != self._pool or JOB_ID not in metadata.labels:
            raise NameTaken(f"{metadata.name} is in the way, which is not of this pool")
        if config_map_owner != job:
            raise NameTaken(f"{metadata.name} is in the way, which is of the job {config_map_owner}")

    async def _own_uid(self, path: str, labels: Mapping[str, str]) -> str:
        """The uid of what has the name, where it is of the job with these labels; empty where the name is free now."""
        try:
            metadata = (await self._api.get(path, PartialObjectMetadata, accept=METADATA_ONLY)).metadata
        except ObjectNotFound:
            return ""
        config_map_owner = metadata.labels.get(JOB_ID, "")
        if config_map_owner == labels[JOB_ID]:
            return metadata.uid
        self._check_makes_way(metadata, labels[JOB])
        log.info("%s of job %s, which has ended, makes way", path, config_map_owner)
        with suppress(ObjectNotFound, Conflict, OutcomeUnknown):
            await self._api.delete(path, options={"preconditions": {"uid": metadata.uid}})
        return ""


def collection_path(namespace: str, kind: str) -> str:
    """The path of a namespace's objects of a kind; all namespaces' where none is given."""
    return f"/api/v1/namespaces/{quote(namespace)}/{kind}" if namespace else f"/api/v1/{kind}"


def is_quota_exceeded(refusal: RequestRejected) -> bool:
    """Whether what was refused may be accepted another time: a quota is used up now, and will not be."""
    return "exceeded quota" in str(refusal)


def _spec_of(content: dict[str, Any]) -> PodSpec:
    try:
        return msgspec.convert(content["spec"], PodSpec)
    except msgspec.ValidationError:
        # Such as a null, which the API server took for nothing: where it stands is what matters most.
        return PodSpec(node_name=content["spec"]["nodeName"])


def _with_digest(content: dict[str, Any]) -> tuple[msgspec.Raw, str]:
    """A pod as it is sent, with a digest of all the rest among its annotations; and that digest.

    Both come of one encoding, in which the annotation is filled in afterwards: it stands before whatever else might look like it, since
    an object's metadata comes before its spec, and annotations before labels.
    """
    metadata = content["metadata"]
    blank = {
        **content,
        "metadata": {**metadata, "annotations": {**metadata["annotations"], MANIFEST_HASH: ""}},
    }
    encoded = msgspec.json.encode(blank, order="deterministic")
    digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
    return msgspec.Raw(encoded.replace(_BLANK, _BLANK[:-1] + f'{digest}"'.encode(), 1)), digest


def _path(metadata: ObjectMeta, kind: str) -> str:
    return f"{collection_path(metadata.namespace, kind)}/{quote(metadata.name)}"
