"""Settings of the scheduler."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster_service.settings import ServiceSettings


class SchedulerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of the scheduler."""

    pool: Annotated[str, Meta(description="the pool that this scheduler schedules")] = "local"
    lease_seconds: Annotated[int, Meta(description="lease duration (s) of a leader", ge=1, le=60)] = 3
    start_timeout_seconds: Annotated[
        int, Meta(description="default start timeout (s) of a placed gang; 0: none", ge=0, le=86_400)
    ] = 600
