"""Volume claims that are bound on first use (``WaitForFirstConsumer``): selects their node.

Normally kube-scheduler sets the annotation that makes the provisioner act. It never sees Muster's pods, so the runtime sets it before
it writes the pod. For ephemeral volumes, whose claims Kubernetes creates after the pod, it does so as soon as they exist.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from muster_runtimes.kubernetes.api_client import ApiClient, collection_path
from muster_runtimes.kubernetes.errors import (
    FORBIDDEN,
    Conflict,
    KubernetesApiError,
    ObjectNotFound,
    RequestRejected,
)
from muster_runtimes.kubernetes.objects import ObjectMeta
from muster_service.logs import fields

log = logging.getLogger(__name__)

SELECTED_NODE = "volume.kubernetes.io/selected-node"

_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_WAIT_FOR_CONSUMER = "WaitForFirstConsumer"
_CHECKED_S = 30.0
_ATTEMPTS = 3
_DELAYS_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    storage_class_name: str | None = None
    volume_name: str = ""


class _Claim(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: _ClaimSpec = _ClaimSpec()


class _StorageClass(msgspec.Struct, frozen=True, rename="camel"):
    provisioner: str = ""
    volume_binding_mode: str | None = None


class VolumeClaims:
    """Sets the selected node of claims."""

    def __init__(self, *, api: ApiClient) -> None:
        self._api = api
        self._checked: dict[tuple[str, str], float] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Stop waiting for claims."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    async def select_node(self, pod: Mapping[str, Any], *, namespace: str, node: str) -> None:
        """Set the selected node of the claims that a pod template names.

        Raises:
            RequestRejected: A claim cannot be provisioned without kube-scheduler.
            KubernetesApiError: The API server cannot be reached.
        """
        for name in claim_names(pod):
            if self._checked.get((namespace, name), 0.0) > time.monotonic():
                continue
            try:
                await self._select(namespace, name, node)
            except ObjectNotFound:
                # It may be created later; until then the status of the pod reports what is missing.
                continue
            except RequestRejected as error:
                if error.status != FORBIDDEN:
                    raise
                log.warning("no permission to set the selected node of claims: %s", error)
            self._checked[namespace, name] = time.monotonic() + _CHECKED_S

    def select_node_later(self, pod: Mapping[str, Any], *, name: str, namespace: str, node: str) -> None:
        """Set the selected node of the claims that Kubernetes creates for the ephemeral volumes of the pod ``name``. Returns at once."""
        claims = [f"{name}-{volume}" for volume in ephemeral_volumes(pod)]
        if claims:
            task = asyncio.create_task(self._select_later(claims, namespace, node))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _select_later(self, names: Sequence[str], namespace: str, node: str) -> None:
        left = list(names)
        for pause_s in _DELAYS_S:
            await asyncio.sleep(pause_s)
            for name in list(left):
                try:
                    await self._select(namespace, name, node)
                except ObjectNotFound:
                    continue
                except KubernetesApiError as error:
                    log.warning(
                        "cannot set the selected node of a claim: %s",
                        error,
                        extra=fields(claim=name, node=node),
                    )
                left.remove(name)
            if not left:
                return

    async def _select(self, namespace: str, name: str, node: str) -> None:
        path = f"{collection_path(namespace, 'persistentvolumeclaims')}/{quote(name)}"
        for _ in range(_ATTEMPTS):
            claim = await self._api.get(path, _Claim)
            storage = claim.spec.storage_class_name
            # Bound, statically provisioned, or already selected for another pod.
            if claim.spec.volume_name or not storage or SELECTED_NODE in claim.metadata.annotations:
                return
            storage_class = await self._api.get(f"{_CLASSES}/{quote(storage)}", _StorageClass)
            if storage_class.volume_binding_mode != _WAIT_FOR_CONSUMER:
                return
            if storage_class.provisioner == _NO_PROVISIONER:
                raise RequestRejected(
                    f"the claim {name} of storage class {storage} waits for kube-scheduler to choose a volume, but Muster places this pod; "
                    "bind the claim to a volume first (volumeName)"
                )
            metadata = {
                "resourceVersion": claim.metadata.resource_version,
                "annotations": {SELECTED_NODE: node},
            }
            try:
                await self._api.patch(path, {"metadata": metadata}, _Claim)
            except Conflict:
                continue
            return


def claim_names(pod: Mapping[str, Any]) -> Collection[str]:
    """Return the claims that a pod template names."""
    sources: list[dict[str, Any]] = [volume.get("persistentVolumeClaim") or {} for volume in _volumes(pod)]
    return list(dict.fromkeys(str(source["claimName"]) for source in sources if source.get("claimName")))


def ephemeral_volumes(pod: Mapping[str, Any]) -> Collection[str]:
    """Return the ephemeral volumes of a pod template, for each of which a pod gets a claim of its own."""
    return [str(volume.get("name")) for volume in _volumes(pod) if volume.get("ephemeral")]


def _volumes(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    spec: Mapping[str, Any] = pod.get("spec") or {}
    volumes: Sequence[Mapping[str, Any]] = spec.get("volumes") or ()
    return volumes
