"""Settings of spec-validator."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from muster_service.settings import ServiceSettings


class SpecValidatorSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of spec-validator."""

    concurrency: Annotated[int, Meta(description="submissions validated at the same time", ge=1, le=1024)] = (
        128
    )
    runtime: Annotated[
        Literal["process", "kubernetes"],
        Meta(description="what runs replicas; kubernetes rejects jobs that cannot be pods"),
    ] = "process"
    gpu_shares: Annotated[
        int,
        Meta(
            description="kubernetes runtime: in how many parts the device plugin shares each GPU, of which a fraction of a GPU "
            "takes one; 1: fractions are refused",
            ge=1,
            le=64,
        ),
    ] = 1
