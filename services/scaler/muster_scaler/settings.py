"""What can be set of a scaler."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from muster_runtime.settings import ServiceSettings


class ScalerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of the scaler."""

    pool: Annotated[str, msgspec.Meta(description="the pool whose jobs this scaler looks at")] = "local"
    policy: Annotated[
        Literal["dragon", "none"],
        msgspec.Meta(description="how jobs grow; one whose elastic.policy is none does not"),
    ] = "dragon"
    quiet_seconds: Annotated[
        float,
        msgspec.Meta(
            description="how long nothing must have been scheduled or scaled before idle room is given away",
            ge=1,
        ),
    ] = 60.0
    lease_seconds: Annotated[
        int, msgspec.Meta(description="how long a silent leader stays leader", ge=1, le=60)
    ] = 3
