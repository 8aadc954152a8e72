"""The Kubernetes runtime: replicas as pods, which are written with their node's name and watched from there on."""

from muster_runtimes.kubernetes.api import Api
from muster_runtimes.kubernetes.archive import Archive
from muster_runtimes.kubernetes.auth import Credentials, NoCredentials
from muster_runtimes.kubernetes.errors import ApiError
from muster_runtimes.kubernetes.limits import Limits
from muster_runtimes.kubernetes.runtime import KubernetesOptions, KubernetesRuntime

__all__ = [
    "Api",
    "ApiError",
    "Archive",
    "Credentials",
    "KubernetesOptions",
    "KubernetesRuntime",
    "Limits",
    "NoCredentials",
]
