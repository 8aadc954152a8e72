"""What can be set of a status-tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from muster_service.settings import ServiceSettings
from muster_status_tracker.webhooks.receivers import read_receivers


class StatusTrackerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of status-tracker."""

    pool: Annotated[str, msgspec.Meta(description="the pool by whose queues jobs are told and listed")] = (
        "local"
    )
    read_wait_seconds: Annotated[
        float,
        msgspec.Meta(
            description="how long a question may wait for the sequence that it must have seen", ge=0, le=30
        ),
    ] = 3.0
    retention_seconds: Annotated[
        int,
        msgspec.Meta(
            description="how long a finished job is kept that has no time to live of its own; 0: until it is deleted",
            ge=0,
        ),
    ] = 2_592_000
    retained_jobs: Annotated[
        int,
        msgspec.Meta(
            description="how many finished jobs are kept; beyond that, those go that ended first; 0: any number",
            ge=0,
        ),
    ] = 20_000
    webhooks: Annotated[
        Path | None,
        msgspec.Meta(description="file that names who is told of changes of phase; nobody without it"),
    ] = None

    def __post_init__(self) -> None:
        """Refuse a file of receivers that cannot be used; raises ``BadReceivers``."""
        if self.webhooks is not None:
            read_receivers(self.webhooks)
