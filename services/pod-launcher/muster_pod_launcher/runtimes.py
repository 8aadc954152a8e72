"""Construction of the configured runtime."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from muster_core.models import Node
from muster_pod_launcher.settings import PodLauncherSettings
from muster_runtimes import AccessibleRuntime
from muster_runtimes.process import (
    NamespaceInUseError,
    NodeSpecError,
    ProcessOptions,
    ProcessRuntime,
    UserIdsError,
    parse_nodes,
    parse_user_ids,
    require_capabilities,
)
from muster_service.app import Context

log = logging.getLogger(__name__)

_BAD_SETTINGS = 2


async def make_runtime(
    settings: PodLauncherSettings, ctx: Context, *, clock: Callable[[], int]
) -> AccessibleRuntime:
    """Return the configured runtime, whose ages are differences of ``clock`` (µs). Exits with 2 if the settings are invalid."""
    if settings.runtime == "kubernetes":
        return await _kubernetes(settings, ctx, clock)
    return _process(settings, clock)


def _process(settings: PodLauncherSettings, clock: Callable[[], int]) -> AccessibleRuntime:
    try:
        return ProcessRuntime(
            root=settings.process_root,
            nodes=_nodes(settings.nodes),
            workdir=settings.workdir,
            environ=os.environ,
            clock=clock,
            options=ProcessOptions(users=_users(settings.replica_users)),
        )
    except NamespaceInUseError as error:
        log.error("MUSTER_PROCESS_ROOT is not usable: %s", error)
        raise SystemExit(_BAD_SETTINGS) from error


def _users(text: str) -> range | None:
    try:
        users = parse_user_ids(text)
        if users is not None:
            require_capabilities(Path("/proc/self/status").read_text())
    except UserIdsError as error:
        log.error("MUSTER_REPLICA_USERS is not usable: %s", error)
        raise SystemExit(_BAD_SETTINGS) from error
    return users


async def _kubernetes(
    settings: PodLauncherSettings, ctx: Context, clock: Callable[[], int]
) -> AccessibleRuntime:
    # Imported here: the process runtime need not pay for the Kubernetes client.
    from muster_pod_launcher.kubernetes_metrics import PrometheusRequestMetrics  # noqa: PLC0415
    from muster_runtimes import kubernetes  # noqa: PLC0415

    credentials = kubernetes.Credentials(
        kubeconfig=Path(settings.kubeconfig) if settings.kubeconfig else None, context=settings.kube_context
    )
    try:
        await credentials.load()
    except kubernetes.CredentialsError as error:
        log.error("the cluster is not usable: %s", error)
        raise SystemExit(_BAD_SETTINGS) from error
    api = kubernetes.ApiClient(
        credentials=credentials,
        limits=kubernetes.RateLimiter(in_flight=settings.kube_in_flight, per_second=settings.kube_per_second),
        timeout_s=settings.kube_timeout_seconds,
        metrics=PrometheusRequestMetrics(ctx.metrics),
    )
    ctx.on_close(api.aclose)
    return kubernetes.KubernetesRuntime(
        api=api,
        archive=kubernetes.LogArchive(root=settings.log_root, max_bytes=settings.log_bytes),
        clock=clock,
        options=kubernetes.KubernetesOptions(
            pool=settings.pool,
            namespace=settings.kube_namespace,
            node_selector=settings.kube_node_selector,
            cluster_domain=settings.kube_cluster_domain,
            start_s=settings.kube_start_seconds,
            node_lost_s=int(settings.kube_node_lost_seconds),
        ),
    )


def _nodes(described: str) -> tuple[Node, ...]:
    try:
        return parse_nodes([text for part in described.split(";") if (text := part.strip())])
    except NodeSpecError as error:
        log.error("MUSTER_NODES is invalid: %s", error)
        raise SystemExit(_BAD_SETTINGS) from error
