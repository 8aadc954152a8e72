"""What can be set of a pod-launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from muster_service.settings import ServiceSettings


class PodLauncherSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of pod-launcher."""

    pool: Annotated[str, msgspec.Meta(description="the pool whose hands this is")] = "local"
    runtime: Annotated[Literal["process", "kubernetes"], msgspec.Meta(description="what runs replicas")] = (
        "process"
    )
    process_root: Annotated[
        Path,
        msgspec.Meta(
            description="process runtime: the folder under which everything of the replicas is kept"
        ),
    ] = Path(".muster/replicas")
    nodes: Annotated[
        str,
        msgspec.Meta(
            description="process runtime: virtual nodes, e.g. 'n1:cpu=4,gpu=2;n2:cpu=4'; empty: this machine as one"
        ),
    ] = ""
    workdir: Annotated[
        Path, msgspec.Meta(description="process runtime: where relative working folders start")
    ] = Path()
    progress_seconds: Annotated[
        float,
        msgspec.Meta(
            description="process runtime: how often what programs say of their progress is read", ge=0.1
        ),
    ] = 5.0
    kube_progress_seconds: Annotated[
        float,
        msgspec.Meta(
            description="kubernetes runtime: how often the logs of jobs whose size may change are read for it",
            ge=0.1,
        ),
    ] = 30.0
    kubeconfig: Annotated[
        str,
        msgspec.Meta(description="kubernetes runtime: the kubeconfig; empty: this pod's service account"),
    ] = ""
    kube_context: Annotated[
        str, msgspec.Meta(description="kubernetes runtime: the kubeconfig's context; empty: its current one")
    ] = ""
    kube_namespace: Annotated[
        str, msgspec.Meta(description="kubernetes runtime: the only namespace that jobs may name; empty: any")
    ] = ""
    kube_node_selector: Annotated[
        str,
        msgspec.Meta(
            description="kubernetes runtime: labels of the pool's nodes, e.g. 'pool=train'; empty: all nodes"
        ),
    ] = ""
    kube_cluster_domain: Annotated[
        str, msgspec.Meta(description="kubernetes runtime: what ends replicas' addresses, e.g. cluster.local")
    ] = ""
    kube_in_flight: Annotated[
        int, msgspec.Meta(ge=1, description="kubernetes runtime: requests to the API server at once")
    ] = 64
    kube_per_second: Annotated[
        float, msgspec.Meta(ge=0, description="kubernetes runtime: requests a second; 0: no bound")
    ] = 0.0
    kube_timeout_seconds: Annotated[
        float,
        msgspec.Meta(gt=0, description="kubernetes runtime: how long an answer is waited for"),
    ] = 30.0
    kube_start_seconds: Annotated[
        float,
        msgspec.Meta(gt=0, description="kubernetes runtime: how long a container may fail to start"),
    ] = 120.0
    kube_report_seconds: Annotated[
        float,
        msgspec.Meta(
            ge=0,
            description="kubernetes runtime: how long replicas that come up are waited for, to be told of together",
        ),
    ] = 0.25
    kube_node_lost_seconds: Annotated[
        float,
        msgspec.Meta(gt=0, description="kubernetes runtime: how long a node may not be heard of"),
    ] = 60.0
    log_root: Annotated[
        Path, msgspec.Meta(description="kubernetes runtime: the folder for logs of pods that are gone")
    ] = Path(".muster/logs")
    log_bytes: Annotated[
        int, msgspec.Meta(ge=0, description="kubernetes runtime: bytes kept of each log; 0: none are kept")
    ] = 64 * 1024 * 1024
