"""The permissions that the runtime needs, as the roles in ``deploy/kubernetes/base/pod-launcher-rbac.yaml`` grant them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import msgspec

from muster_runtimes.kubernetes.api_client import ApiClient

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """One verb on one resource; ``of_cluster`` if it is needed in all namespaces, also by a runtime that is limited to one."""

    group: str = ""
    resource: str
    subresource: str = ""
    verb: str
    of_cluster: bool = False

    def __str__(self) -> str:
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb} {resource}{f'.{self.group}' if self.group else ''}"


def _verbs(resource: str, *verbs: str, group: str = "", of_cluster: bool = False) -> Iterator[Permission]:
    name, _, subresource = resource.partition("/")
    for verb in verbs:
        yield Permission(
            group=group, resource=name, subresource=subresource, verb=verb, of_cluster=of_cluster
        )


PERMISSIONS: tuple[Permission, ...] = (
    *_verbs("nodes", "list", "watch", of_cluster=True),
    # What other pods use of the nodes.
    *_verbs("pods", "list", "watch", of_cluster=True),
    *_verbs("storageclasses", "get", group="storage.k8s.io", of_cluster=True),
    *_verbs("pods", "get", "list", "watch", "create", "patch", "delete", "deletecollection"),
    *_verbs("pods/status", "patch"),
    *_verbs("pods/log", "get"),
    *_verbs("pods/exec", "get", "create"),
    *_verbs("pods/portforward", "get", "create"),
    *_verbs("services", "get", "create", "delete", "deletecollection"),
    *_verbs("persistentvolumeclaims", "get", "patch"),
    *_verbs("configmaps", "get", "list", "watch", "create", "patch", "delete"),
)


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus


async def missing_permissions(api: ApiClient, *, namespace: str) -> list[Permission]:
    """Return the permissions that this client does not have; raises ``KubernetesApiError``.

    Args:
        api: The client, whose user every cluster lets ask for its own permissions.
        namespace: The only namespace of jobs; empty for all.
    """
    allowed = await asyncio.gather(*(_is_allowed(api, each, namespace) for each in PERMISSIONS))
    return [each for each, granted in zip(PERMISSIONS, allowed, strict=True) if not granted]


async def _is_allowed(api: ApiClient, permission: Permission, namespace: str) -> bool:
    attributes = {
        "namespace": "" if permission.of_cluster else namespace,
        "verb": permission.verb,
        "group": permission.group,
        "resource": permission.resource,
        "subresource": permission.subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    return (await api.create(_REVIEWS, review, _Review)).status.allowed
