"""Writes of the runtime's objects. Each write can be repeated, and no write touches the objects of others.

A name may belong to an object of an earlier job with the same name, or of an earlier run of the same replica: that object is deleted by
its uid and replaced. The scheduler admits one unended job per name, but job ``a-b`` with role ``c`` and job ``a`` with role ``b-c`` use
the same pod names: while both run, the later one fails with ``NameTaken`` and goes back to its queue.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal
from urllib.parse import quote

import msgspec

from muster_core.frameworks import ConfigFile
from muster_core.lifecycle import OrphanMark
from muster_core.models import Job
from muster_runtimes.kubernetes.api_client import METADATA_ONLY, STRATEGIC_MERGE, ApiClient, collection_path
from muster_runtimes.kubernetes.errors import (
    AlreadyExists,
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
    ORPHAN,
    POOL,
    encode_mark,
    of_job,
    of_start,
    replica_of,
)
from muster_runtimes.kubernetes.manifests import config_map_manifest, config_map_name
from muster_runtimes.kubernetes.objects import ObjectMeta, PartialObjectMetadata, Pod, PodSpec
from muster_runtimes.protocols import ReplicaId

log = logging.getLogger(__name__)

_ATTEMPTS = 4
_NO_FIELD_VALIDATION = "fieldValidation=Ignore"
"""Field validation makes the API server decode the object twice, and its warnings are not read."""
_EMPTY_HASH = f'"{MANIFEST_HASH}":""'.encode()


class NameTerminating(Exception):
    """The name belongs to an object that is being deleted; retry soon."""


class NameTaken(Exception):
    """The name belongs to an object that is not Muster's, or that is another running job's."""


class ObjectWriter:
    """Writes the objects of one pool."""

    def __init__(self, *, api: ApiClient, pool: str) -> None:
        self._api = api
        self._pool = pool

    async def ensure_config_map(
        self,
        job_id: str,
        job: Job,
        *,
        uid: str,
        members: bytes | None,
        files: dict[str, ConfigFile],
        retained: bytes | None = None,
    ) -> str:
        """Create or update the config map of a job, and return its uid.

        Args:
            uid: The known uid of the config map; empty if it is not known to exist.
            members: The list of members, if it is in the config map.
            files: The files of the framework.
            retained: What recreates the record of the job.

        Raises:
            NameTaken: The name belongs to another object.
            NameTerminating: The name is not free yet.
            RequestRejected: The API server rejects the config map.
            ObjectNotFound: The namespace does not exist.
        """
        manifest = config_map_manifest(
            job_id, job, pool=self._pool, members=members, files=files, retained=retained
        )
        collection = collection_path(job.namespace, "configmaps")
        path = f"{collection}/{config_map_name(job.name)}"
        for _ in range(_ATTEMPTS):
            try:
                if uid:
                    change = {"metadata": {"uid": uid}, "binaryData": manifest["binaryData"]}
                    written = await self._api.patch(path, change, PartialObjectMetadata, accept=METADATA_ONLY)
                else:
                    written = await self._api.create(
                        collection, manifest, PartialObjectMetadata, accept=METADATA_ONLY
                    )
            except (AlreadyExists, OutcomeUnknown):
                uid = await self._own_uid(path, manifest["metadata"]["labels"])
            except (Conflict, ObjectNotFound):
                if not uid:
                    raise
                uid = ""
            else:
                return written.metadata.uid
        raise NameTerminating(path)

    async def ensure_service(self, manifest: dict[str, Any]) -> None:
        """Create a service unless it exists. Raises ``NameTaken``, ``NameTerminating`` and ``RequestRejected``."""
        metadata = manifest["metadata"]
        collection = collection_path(metadata["namespace"], "services")
        for _ in range(_ATTEMPTS):
            try:
                await self._api.create(collection, manifest, PartialObjectMetadata, accept=METADATA_ONLY)
            except (AlreadyExists, OutcomeUnknown):
                if not await self._own_uid(f"{collection}/{metadata['name']}", metadata["labels"]):
                    continue
            return
        raise NameTerminating(metadata["name"])

    async def ensure_pod(
        self, manifest: dict[str, Any], replica: ReplicaId, *, grace_s: int, before_send: Callable[[], None]
    ) -> Pod:
        """Create a pod unless it exists, and return it.

        Args:
            manifest: The pod.
            replica: The run that the pod belongs to.
            grace_s: The grace period of an earlier pod with this name.
            before_send: Called just before the request is sent; may raise to cancel it.

        Raises:
            NameTaken: The name belongs to another object.
            NameTerminating: The name is not free yet.
            RequestRejected: The API server rejects the pod.
        """
        metadata = manifest["metadata"]
        body, digest = _with_hash(manifest)
        collection = collection_path(metadata["namespace"], "pods")
        path = f"{collection}/{metadata['name']}"
        for _ in range(_ATTEMPTS):
            try:
                # The spec is known, so the response is only metadata.
                created = await self._api.create(
                    f"{collection}?{_NO_FIELD_VALIDATION}",
                    body,
                    PartialObjectMetadata,
                    accept=METADATA_ONLY,
                    before_send=before_send,
                )
                return Pod(metadata=created.metadata, spec=_spec_of(manifest))
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
            self._check_replaceable(found.metadata, metadata["labels"][JOB])
            if found.metadata.deletion_timestamp:
                raise NameTerminating(path)
            await self.delete_pod(found.metadata, grace_s=grace_s)
        raise NameTerminating(path)

    async def delete_pod(self, metadata: ObjectMeta, *, grace_s: int | None) -> None:
        """Delete a pod within ``grace_s`` seconds (0: by force, without its kubelet; None: the pod's own grace period)."""
        grace = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        await self._delete(metadata, "pods", {**grace, "preconditions": {"uid": metadata.uid}})

    async def delete_start(self, replica: ReplicaId, namespace: str, *, generation: int) -> None:
        """Delete all pods that start together with a replica, in one request."""
        query = {"labelSelector": of_start(replica, generation)}
        with suppress(ObjectNotFound):
            await self._api.delete(collection_path(namespace, "pods"), query=query)

    async def mark_failed(self, metadata: ObjectMeta) -> None:
        """Set the phase of a pod to Failed, in place of a kubelet that does not report its end."""
        change = {"metadata": {"uid": metadata.uid}, "status": {"phase": "Failed"}}
        await self._patch_pod(metadata, "/status", change)

    async def remove_finalizer(self, metadata: ObjectMeta) -> None:
        """Remove Muster's finalizer from a pod whose end is recorded."""
        change = {"metadata": {"uid": metadata.uid, "$deleteFromPrimitiveList/finalizers": [FINALIZER]}}
        await self._patch_pod(metadata, "", change)

    async def mark_orphan(
        self, metadata: ObjectMeta, kind: Literal["pods", "configmaps"], mark: OrphanMark | None
    ) -> None:
        """Set or remove the label of orphans of an object; one that was deleted or replaced is left alone."""
        value = None if mark is None else encode_mark(mark)
        change = {"metadata": {"uid": metadata.uid, "labels": {ORPHAN: value}}}
        with suppress(ObjectNotFound, Conflict):
            await self._api.patch(_path(metadata, kind), change, PartialObjectMetadata, accept=METADATA_ONLY)

    async def delete_job_objects(self, job_id: str, namespace: str) -> None:
        """Delete the pods and services of a job."""
        query = {"labelSelector": of_job(job_id)}
        for kind in ("pods", "services"):
            with suppress(ObjectNotFound):
                await self._api.delete(collection_path(namespace, kind), query=query)

    async def delete_config_map(self, metadata: ObjectMeta) -> None:
        """Delete the config map of a job, and with it the objects that it owns."""
        options = {"preconditions": {"uid": metadata.uid}, "propagationPolicy": "Background"}
        await self._delete(metadata, "configmaps", options)

    async def _delete(self, metadata: ObjectMeta, kind: str, options: dict[str, Any]) -> None:
        path = _path(metadata, kind)
        try:
            await self._api.delete(path, options=options)
        except ObjectNotFound:
            return
        except Conflict:
            if await self._exists(path, metadata.uid):
                raise

    async def _patch_pod(self, metadata: ObjectMeta, subresource: str, change: dict[str, Any]) -> None:
        path = _path(metadata, "pods")
        try:
            await self._api.patch(
                path + subresource, change, PartialObjectMetadata, patch=STRATEGIC_MERGE, accept=METADATA_ONLY
            )
        except ObjectNotFound:
            return
        except Conflict:
            if await self._exists(path, metadata.uid):
                raise

    async def _exists(self, path: str, uid: str) -> bool:
        """Whether the object still exists: a conflict means that it was replaced, or merely that another write was faster."""
        try:
            found = await self._api.get(path, PartialObjectMetadata, accept=METADATA_ONLY)
        except ObjectNotFound:
            return False
        return found.metadata.uid == uid

    def _check_replaceable(self, metadata: ObjectMeta, job: str) -> None:
        """Raise ``NameTaken`` unless the object belongs to this pool and to a job called ``job``."""
        owner = metadata.labels.get(JOB, "")
        if metadata.labels.get(POOL) != self._pool or JOB_ID not in metadata.labels:
            raise NameTaken(f"the name {metadata.name} is taken by an object outside this pool")
        if owner != job:
            raise NameTaken(f"the name {metadata.name} is taken by the job {owner}")
        if ORPHAN in metadata.labels:
            raise NameTaken(
                f"the name {metadata.name} is taken by the orphan {metadata.labels[JOB_ID]}; adopt or remove it"
            )

    async def _own_uid(self, path: str, labels: Mapping[str, str]) -> str:
        """Return the uid of the object at ``path`` if it belongs to the job with these labels; empty if the name is free now."""
        try:
            metadata = (await self._api.get(path, PartialObjectMetadata, accept=METADATA_ONLY)).metadata
        except ObjectNotFound:
            return ""
        owner = metadata.labels.get(JOB_ID, "")
        if owner == labels[JOB_ID]:
            return metadata.uid
        self._check_replaceable(metadata, labels[JOB])
        log.info("replacing %s of the ended job %s", path, owner)
        with suppress(ObjectNotFound, Conflict, OutcomeUnknown):
            await self._api.delete(path, options={"preconditions": {"uid": metadata.uid}})
        return ""


def is_quota_exceeded(rejection: RequestRejected) -> bool:
    """Whether a request was rejected because a quota is used up, so that it may be accepted later."""
    return "exceeded quota" in str(rejection)


def _spec_of(manifest: dict[str, Any]) -> PodSpec:
    try:
        return msgspec.convert(manifest["spec"], PodSpec)
    except msgspec.ValidationError:
        # For example a null, which the API server ignores; the node matters most.
        return PodSpec(node_name=manifest["spec"]["nodeName"])


def _with_hash(manifest: dict[str, Any]) -> tuple[msgspec.Raw, str]:
    """Return the encoded manifest with the hash of all its other content among its annotations, and that hash.

    Both come from one encoding, into which the hash is inserted afterwards. The first match is the annotation: metadata comes before the
    spec, and annotations before labels.
    """
    metadata = manifest["metadata"]
    blank = {
        **manifest,
        "metadata": {**metadata, "annotations": {**metadata["annotations"], MANIFEST_HASH: ""}},
    }
    encoded = msgspec.json.encode(blank, order="deterministic")
    digest = hashlib.blake2b(encoded, digest_size=8).hexdigest()
    return msgspec.Raw(encoded.replace(_EMPTY_HASH, _EMPTY_HASH[:-1] + f'{digest}"'.encode(), 1)), digest


def _path(metadata: ObjectMeta, kind: str) -> str:
    return f"{collection_path(metadata.namespace, kind)}/{quote(metadata.name)}"
