"""Settings of the gateway."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster_service.settings import ServiceSettings


class GatewaySettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of the gateway."""

    spec_validator_address: Annotated[str, Meta(description="gRPC target of spec-validator")] = (
        "dns:///spec-validator:7000"
    )
    status_tracker_address: Annotated[str, Meta(description="gRPC target of status-tracker")] = (
        "dns:///status-tracker:7000"
    )
    scheduler_address: Annotated[str, Meta(description="gRPC target of the scheduler")] = (
        "dns:///scheduler:7000"
    )
    pod_launcher_address: Annotated[str, Meta(description="gRPC target of pod-launcher")] = (
        "dns:///pod-launcher:7000"
    )
    trace_query_url: Annotated[
        str, Meta(description="base address of a Jaeger query API that holds the traces")
    ] = ""
    bus_monitor_url: Annotated[
        str,
        Meta(
            description="HTTP monitoring of each server of the broker, separated by commas, from which `muster doctor` reads settings"
        ),
    ] = ""
    validation_wait_seconds: Annotated[
        float, Meta(description="default time that a submission waits for its validation", ge=0, le=30)
    ] = 2.0
