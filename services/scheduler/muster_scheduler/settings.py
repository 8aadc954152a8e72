"""What can be set of a scheduler."""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_service.settings import ServiceSettings


class SchedulerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of the scheduler."""

    pool: Annotated[str, msgspec.Meta(description="the pool that this scheduler decides for")] = "local"
    lease_seconds: Annotated[
        int, msgspec.Meta(description="how long a silent leader stays leader", ge=1, le=60)
    ] = 3
    start_timeout_seconds: Annotated[
        int,
        msgspec.Meta(
            description="how long a gang may take to start once it is placed, where its job does not say; 0: any time",
            ge=0,
            le=86_400,
        ),
    ] = 600
