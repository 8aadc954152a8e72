"""What can be set of a scaler."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from muster_core.autoscaling import ElasticSettings
from muster_service.settings import ServiceSettings


class ScalerSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of the scaler. Queues and jobs that say something of elasticity themselves are followed first."""

    pool: Annotated[str, msgspec.Meta(description="the pool whose jobs this scaler looks at")] = "local"
    policy: Annotated[
        Literal["marginal_gain", "dragon", "max_min", "none"],
        msgspec.Meta(description="who grows and who gives, where neither job nor queue says"),
    ] = "marginal_gain"
    idle_period_seconds: Annotated[
        float,
        msgspec.Meta(
            description="how long nothing must have been scheduled or scaled before idle room is given away",
            ge=1,
        ),
    ] = 60.0
    cool_down_seconds: Annotated[
        int, msgspec.Meta(description="how long a job is left alone after a change of its size", ge=0)
    ] = 0
    growth_step: Annotated[
        int, msgspec.Meta(description="by how many replicas a job grows at once; 0: as many as fit", ge=0)
    ] = 0
    min_gain: Annotated[
        int,
        msgspec.Meta(description="what growth must gain at least, in thousandths of a worker", ge=0),
    ] = 250
    ask_again_seconds: Annotated[
        int,
        msgspec.Meta(
            description="how soon a proposal that was not taken up is repeated when the pool has changed",
            ge=1,
        ),
    ] = 15
    lease_seconds: Annotated[
        int, msgspec.Meta(description="how long a silent leader stays leader", ge=1, le=60)
    ] = 3

    @property
    def elastic(self) -> ElasticSettings:
        """The numbers as the core takes them."""
        return ElasticSettings(
            policy=self.policy,
            idle_period_s=round(self.idle_period_seconds),
            cool_down_s=self.cool_down_seconds,
            step=self.growth_step,
            min_gain=self.min_gain,
        )
