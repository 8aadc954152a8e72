"""Finds the programs of a cluster: installed ones, or built from ``tests/cluster/controlplane/go.mod``."""

import os
from collections.abc import Mapping
from pathlib import Path

from muster_testing.go_programs import (
    TESTS,
    GoModule,
    MissingTool,
    find_installed,
    first_program,
    required_version,
)

_MODULE = TESTS / "cluster" / "controlplane"
_RELEASE = "k8s.io/component-base/version.gitVersion"

#: Programs of the control plane, and their Go packages.
PACKAGES: Mapping[str, str] = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
}

CONTROL_PLANE = GoModule(
    name="cluster",
    folder=_MODULE,
    packages=PACKAGES,
    command="make cluster-tools",
    variables={_RELEASE: required_version(_MODULE, "k8s.io/kubernetes")},
)


def find(name: str) -> Path | None:
    """Return a program from ``KUBEBUILDER_ASSETS``, the built ones or ``PATH``, in this order; None if it is missing."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    given = first_program([Path(assets) / name]) if assets else None
    return given or (CONTROL_PLANE.find(name) if name in PACKAGES else find_installed(name))


def require(name: str) -> Path:
    """Return a program; raises ``MissingTool``."""
    found = find(name)
    if found is None:
        remedy = f"run {CONTROL_PLANE.command}" if name in PACKAGES else "install its system package"
        raise MissingTool(f"{name} is not installed; {remedy}")
    return found
