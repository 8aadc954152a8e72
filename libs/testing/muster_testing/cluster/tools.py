"""Where the programs of a cluster are: on this machine already, or built from ``tests/cluster/controlplane/go.mod``.

Nothing is built in the middle of a test: what is missing is said, with the command that builds it.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

MODULE = Path(__file__).resolve().parents[4] / "tests" / "cluster" / "controlplane"

#: Programs of the control plane and the package that each is built from.
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
    """A program is not on this machine; the message says how to get it."""


def built_folder() -> Path:
    """Where ``make cluster-tools`` puts what it builds: a folder of the user's cache, named after the pinned versions."""
    pinned = hashlib.sha256((MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes())
    return cache_folder() / "cluster" / pinned.hexdigest()[:12]


def cache_folder() -> Path:
    """The cache that outlives test runs: ``MUSTER_CACHE``, or ``muster`` in the user's cache folder."""
    if given := os.environ.get("MUSTER_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"


def find(name: str) -> Path | None:
    """The program called ``name``: in ``KUBEBUILDER_ASSETS``, built, or on ``PATH``, in this order; None when nowhere."""
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
    """The program called ``name``; raises ``MissingTool``."""
    found = find(name)
    if found is None:
        remedy = "make cluster-tools" if name in PACKAGES else "install the package of the system that has it"
        raise MissingTool(f"{name} is not on this machine: {remedy}")
    return found
