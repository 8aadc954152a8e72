"""Settings of the status-tracker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from muster_service.settings import LeaseSettings
from muster_status_tracker.webhooks.receivers import read_receivers


class StatusTrackerSettings(LeaseSettings, frozen=True, kw_only=True):
    """Settings of the status-tracker."""

    pool: Annotated[str, Meta(description="the pool whose queues are used to report and filter jobs")] = (
        "local"
    )
    read_wait_seconds: Annotated[
        float, Meta(description="how long (s) a query waits for the revision that it requires", ge=0, le=30)
    ] = 3.0
    retention_seconds: Annotated[
        int,
        Meta(
            description="how long (s) an ended job without a time to live is retained; 0: until it is deleted",
            ge=0,
        ),
    ] = 2_592_000
    retained_jobs: Annotated[
        int,
        Meta(
            description="how many ended jobs are retained; the oldest are deleted first; 0: unlimited", ge=0
        ),
    ] = 20_000
    webhooks: Annotated[
        Path | None,
        Meta(
            description="file of webhook receivers, which are notified of changes of phase; none by default"
        ),
    ] = None

    def __post_init__(self) -> None:
        """Validate the file of receivers; raises ``BadReceivers``."""
        if self.webhooks is not None:
            read_receivers(self.webhooks)
