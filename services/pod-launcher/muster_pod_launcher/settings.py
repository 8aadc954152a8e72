"""Settings of the pod-launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from muster_service.settings import LeaseSettings


class PodLauncherSettings(LeaseSettings, frozen=True, kw_only=True):
    """Settings of the pod-launcher."""

    pool: Annotated[str, Meta(description="the pool whose replicas this service runs")] = "local"
    runtime: Annotated[Literal["process", "kubernetes"], Meta(description="the runtime of replicas")] = (
        "process"
    )
    process_root: Annotated[Path, Meta(description="process runtime: the directory of all replicas")] = Path(
        ".muster/replicas"
    )
    nodes: Annotated[
        str,
        Meta(
            description="process runtime: virtual nodes, e.g. 'n1:cpu=4,gpu=2;n2:cpu=4'; empty: this machine as one"
        ),
    ] = ""
    workdir: Annotated[
        Path, Meta(description="process runtime: the base of relative working directories")
    ] = Path()
    replica_users: Annotated[
        str,
        Meta(
            description="process runtime: user ids of jobs, e.g. '20000-59999'; needs root; empty: replicas run as pod-launcher's user"
        ),
    ] = ""
    orphan_grace_seconds: Annotated[
        float,
        Meta(
            description="how long (s) replicas of a job that has no record are kept, until a user adopts or removes it",
            ge=0,
        ),
    ] = 86_400.0
    progress_seconds: Annotated[
        float, Meta(description="process runtime: interval (s) of reading progress reports", ge=0.1)
    ] = 5.0
    kube_progress_seconds: Annotated[
        float,
        Meta(
            description="kubernetes runtime: interval (s) of reading the logs of elastic jobs for progress reports",
            ge=0.1,
        ),
    ] = 30.0
    kubeconfig: Annotated[
        str, Meta(description="kubernetes runtime: the kubeconfig; empty: the pod's service account")
    ] = ""
    kube_context: Annotated[
        str, Meta(description="kubernetes runtime: the context of the kubeconfig; empty: its current one")
    ] = ""
    kube_namespace: Annotated[
        str, Meta(description="kubernetes runtime: the only namespace of jobs; empty: any")
    ] = ""
    kube_node_selector: Annotated[
        str,
        Meta(
            description="kubernetes runtime: labels of the pool's nodes, e.g. 'pool=train'; empty: all nodes"
        ),
    ] = ""
    kube_cluster_domain: Annotated[
        str, Meta(description="kubernetes runtime: the suffix of replica addresses, e.g. cluster.local")
    ] = ""
    kube_in_flight: Annotated[
        int, Meta(ge=1, description="kubernetes runtime: concurrent requests to the API server")
    ] = 64
    kube_per_second: Annotated[
        float, Meta(ge=0, description="kubernetes runtime: requests per second; 0: unlimited")
    ] = 0.0
    kube_timeout_seconds: Annotated[
        float, Meta(gt=0, description="kubernetes runtime: timeout (s) of requests")
    ] = 30.0
    kube_start_seconds: Annotated[
        float, Meta(gt=0, description="kubernetes runtime: how long (s) a container may fail to start")
    ] = 120.0
    kube_report_seconds: Annotated[
        float,
        Meta(ge=0, description="kubernetes runtime: how long (s) reports of starting replicas are batched"),
    ] = 0.25
    kube_node_lost_seconds: Annotated[
        float,
        Meta(
            gt=0,
            description="kubernetes runtime: how long (s) a node may be silent before its replicas are lost",
        ),
    ] = 60.0
    log_root: Annotated[
        Path, Meta(description="kubernetes runtime: the directory for logs of deleted pods")
    ] = Path(".muster/logs")
    log_bytes: Annotated[
        int, Meta(ge=0, description="kubernetes runtime: retained bytes of each log; 0: none")
    ] = 64 * 1024 * 1024
