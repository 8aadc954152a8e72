"""The Kubernetes runtime: replicas as pods that are written with their node's name and watched from there on.

``runtime`` is the ``KubernetesRuntime``. ``gang_starter`` creates the pods of a gang, all or none: ``manifests`` builds
the objects, ``writer`` and ``volume_claims`` write them. ``informers`` keep the pods and config maps of the owned
partitions with the help of ``reflector``, and ``pod_status`` turns a pod into an observation. ``nodes`` are the pool.
``pod_cleanup`` removes finalizers, ``logs`` reads and archives logs, ``access`` is exec and port-forward over
``websocket``. ``api_client`` and ``auth`` talk to the API server, ``labels`` and ``objects`` are what
they exchange.
"""

from muster_runtimes.kubernetes.api_client import (
    NO_RESPONSE as NO_RESPONSE,
    VERBS as VERBS,
    ApiClient as ApiClient,
    RateLimiter as RateLimiter,
    RequestMetrics as RequestMetrics,
)
from muster_runtimes.kubernetes.auth import Credentials as Credentials, CredentialsError as CredentialsError
from muster_runtimes.kubernetes.errors import KubernetesApiError as KubernetesApiError
from muster_runtimes.kubernetes.logs import LogArchive as LogArchive
from muster_runtimes.kubernetes.runtime import (
    KubernetesOptions as KubernetesOptions,
    KubernetesRuntime as KubernetesRuntime,
)
