"""What can be set of a status-tracker."""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_runtime.settings import ServiceSettings


class StatusTrackerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of status-tracker."""

    read_wait_seconds: Annotated[
        float,
        msgspec.Meta(
            description="how long a question may wait for the sequence that it must have seen", ge=0, le=30
        ),
    ] = 3.0
