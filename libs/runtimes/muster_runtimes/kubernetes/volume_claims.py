"""Claims of volumes that are made once it is known on which node they are needed (``WaitForFirstConsumer``).

In a cluster it is kube-scheduler that says so, with an annotation of the claim, on which the provisioner then acts. It never sees these
pods, so it is said here, before the pod is written; for the claims that a pod has of its own, which Kubernetes makes after it, as soon
as they are there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from muster_runtimes.kubernetes.api_client import (
    ApiClient,
    Conflict,
    KubernetesApiError,
    ObjectNotFound,
    RequestRejected,
)
from muster_runtimes.kubernetes.objects import ObjectMeta
from muster_runtimes.kubernetes.writer import collection_path
from muster_service.logs import fields

log = logging.getLogger(__name__)

SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"

_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_BY_HAND = "kubernetes.io/no-provisioner"
_WAITS = "WaitForFirstConsumer"
_KNOWN_S = 30.0
_TRIES = 3
_PAUSES_S = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
_FORBIDDEN = 403


class _ClaimSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What a claim asks for, and what it has got."""

    storage_class_name: str | None = None
    volume_name: str = ""


class _Claim(msgspec.Struct, frozen=True):
    """A claim."""

    metadata: ObjectMeta
    spec: _ClaimSpec = _ClaimSpec()


class _Class(msgspec.Struct, frozen=True, rename="camel"):
    """A storage class."""

    provisioner: str = ""
    volume_binding_mode: str | None = None


class VolumeClaims:
    """Says of claims where they are needed."""

    def __init__(self, *, api: ApiClient) -> None:
        self._api = api
        self._known: dict[tuple[str, str], float] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Wait for no claim any more."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    async def select(self, pod: Mapping[str, Any], *, namespace: str, node: str) -> None:
        """Set the selected node of the claims that a pod template names.

        Raises:
            RequestRejected: A claim cannot be provisioned without kube-scheduler.
            KubernetesApiError: The API server cannot be reached.
        """
        for name in claim_names(pod):
            if self._known.get((namespace, name), 0.0) > time.monotonic():
                continue
            try:
                await self._select(namespace, name, node)
            except ObjectNotFound:
                # Whoever makes it may be about to; until then its pod says what it waits for.
                continue
            except RequestRejected as error:
                if error.status != _FORBIDDEN:
                    raise
                log.warning("claims are left to others: %s", error)
            self._known[namespace, name] = time.monotonic() + _KNOWN_S

    def follow(self, pod: Mapping[str, Any], *, name: str, namespace: str, node: str) -> None:
        """Do the same for the claims that Kubernetes makes for the pod ``name``, as they come. Returns at once."""
        own = [f"{name}-{volume}" for volume in ephemeral_volumes(pod)]
        if own:
            task = asyncio.create_task(self._follow(own, namespace, node))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)

    async def _follow(self, names: Sequence[str], namespace: str, node: str) -> None:
        left = list(names)
        for pause_s in _PAUSES_S:
            await asyncio.sleep(pause_s)
            for name in list(left):
                try:
                    await self._select(namespace, name, node)
                except ObjectNotFound:
                    continue
                except KubernetesApiError as error:
                    log.warning(
                        "a claim is not told its node: %s", error, extra=fields(claim=name, node=node)
                    )
                left.remove(name)
            if not left:
                return

    async def _select(self, namespace: str, name: str, node: str) -> None:
        path = f"{collection_path(namespace, 'persistentvolumeclaims')}/{quote(name)}"
        for _ in range(_TRIES):
            claim = await self._api.get(path, _Claim)
            storage = claim.spec.storage_class_name
            # Bound, or to be bound to what is there, or told before: where another pod is, which its provisioner may be at work for.
            if (
                claim.spec.volume_name
                or not storage
                or SELECTED_NODE_ANNOTATION in claim.metadata.annotations
            ):
                return
            kind = await self._api.get(f"{_CLASSES}/{quote(storage)}", _Class)
            if kind.volume_binding_mode != _WAITS:
                return
            if kind.provisioner == _BY_HAND:
                raise RequestRejected(
                    f"the claim {name} waits for kube-scheduler, which does not place these pods, to choose one of the volumes of class "
                    f"{storage}: bind it to a volume first (volumeName)"
                )
            metadata = {
                "resourceVersion": claim.metadata.resource_version,
                "annotations": {SELECTED_NODE_ANNOTATION: node},
            }
            try:
                await self._api.patch(path, {"metadata": metadata}, _Claim)
            except Conflict:
                continue
            return


def claim_names(pod: Mapping[str, Any]) -> Collection[str]:
    """The claims that a template names."""
    sources: list[dict[str, Any]] = [volume.get("persistentVolumeClaim") or {} for volume in _volumes(pod)]
    return list(dict.fromkeys(str(source["claimName"]) for source in sources if source.get("claimName")))


def ephemeral_volumes(pod: Mapping[str, Any]) -> Collection[str]:
    """The volumes of a template for which each pod gets a claim of its own."""
    return [str(volume.get("name")) for volume in _volumes(pod) if volume.get("ephemeral")]


def _volumes(pod: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    spec: Mapping[str, Any] = pod.get("spec") or {}
    volumes: Sequence[Mapping[str, Any]] = spec.get("volumes") or ()
    return volumes
