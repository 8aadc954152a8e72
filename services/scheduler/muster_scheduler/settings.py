"""Settings of the scheduler."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster_service.settings import LeaseSettings


class SchedulerSettings(LeaseSettings, frozen=True, kw_only=True):
    """Settings of the scheduler."""

    pool: Annotated[str, Meta(description="the pool that this scheduler schedules")] = "local"
    start_timeout_seconds: Annotated[
        int, Meta(description="default start timeout (s) of a placed gang; 0: none", ge=0, le=86_400)
    ] = 600
