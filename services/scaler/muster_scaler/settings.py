"""Settings of the scaler."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from muster_core.autoscaling import ElasticSettings
from muster_service.settings import LeaseSettings


class ScalerSettings(LeaseSettings, frozen=True, kw_only=True):
    """Settings of the scaler. The elasticity settings of a job and of its queue have precedence."""

    pool: Annotated[str, Meta(description="the pool whose jobs the scaler resizes")] = "local"
    policy: Annotated[
        Literal["marginal_gain", "dragon", "max_min", "none"],
        Meta(description="the policy of jobs that have none and whose queues have none"),
    ] = "marginal_gain"
    idle_period_seconds: Annotated[
        float, Meta(description="seconds without a placement or a resize after which jobs grow", ge=1)
    ] = 60.0
    cool_down_seconds: Annotated[
        int, Meta(description="seconds for which a job keeps its size after a resize", ge=0)
    ] = 0
    growth_step: Annotated[
        int, Meta(description="the largest growth at once, in replicas; 0: unlimited", ge=0)
    ] = 0
    min_gain: Annotated[
        int, Meta(description="the smallest gain that is worth a replica, in thousandths of a worker", ge=0)
    ] = 250
    repeat_interval_seconds: Annotated[
        int,
        Meta(
            description="seconds after which a proposal without effect is repeated if the pool has changed",
            ge=1,
        ),
    ] = 15

    @property
    def elastic(self) -> ElasticSettings:
        """Return the settings that the planner uses."""
        return ElasticSettings(
            policy=self.policy,
            idle_period_s=round(self.idle_period_seconds),
            cool_down_s=self.cool_down_seconds,
            step=self.growth_step,
            min_gain=self.min_gain,
        )
