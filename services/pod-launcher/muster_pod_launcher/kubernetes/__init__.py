"""The Kubernetes runtime: replicas as pods, which are written with their node's name and watched from there on."""

from muster_pod_launcher.kubernetes.api import Api
from muster_pod_launcher.kubernetes.archive import Archive
from muster_pod_launcher.kubernetes.auth import Credentials, NoCredentials
from muster_pod_launcher.kubernetes.errors import ApiError
from muster_pod_launcher.kubernetes.limits import Limits
from muster_pod_launcher.kubernetes.runtime import KubernetesOptions, KubernetesRuntime

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
