"""Finds the programs of a cluster: installed ones, or built from ``tests/cluster/controlplane/go.mod``.

Tests build nothing; the error for a missing program names the command that builds it.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

MODULE = Path(__file__).resolve().parents[4] / "tests" / "cluster" / "controlplane"

#: Programs of the control plane, and their Go packages.
PACKAGES: Mapping[str, str] = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
}
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/lib/cni", "/opt/cni/bin")


class MissingTool(Exception):
    """A program is not installed; the message says how to get it."""


def built_folder() -> Path:
    """Return where ``make cluster-tools`` builds: a directory in the user's cache, named after the pinned versions."""
    pinned = hashlib.sha256((MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes())
    return cache_folder() / "cluster" / pinned.hexdigest()[:12]


def cache_folder() -> Path:
    """Return the persistent cache: ``MUSTER_CACHE``, or ``muster`` in the user's cache directory."""
    if given := os.environ.get("MUSTER_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"


def find(name: str) -> Path | None:
    """Return a program from ``KUBEBUILDER_ASSETS``, the built ones or ``PATH``, in this order; None if it is missing."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    candidates = [Path(assets) / name] if assets else []
    if name in PACKAGES:
        candidates.append(built_folder() / name)
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return candidate
    places = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS))
    found = shutil.which(name, path=places)
    return None if found is None else Path(found)


def require(name: str) -> Path:
    """Return a program; raises ``MissingTool``."""
    found = find(name)
    if found is None:
        remedy = "run make cluster-tools" if name in PACKAGES else "install its system package"
        raise MissingTool(f"{name} is not installed; {remedy}")
    return found
