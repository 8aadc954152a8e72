"""The permissions that the runtime needs, as the roles in ``deploy/kubernetes/base/pod-launcher-rbac.yaml`` grant them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


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
