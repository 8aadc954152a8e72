"""The Hypothesis profile ``nightly``: 2,000 examples per property."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_CHECKS = [HealthCheck.too_slow, HealthCheck.filter_too_much]

settings.register_profile(
    "nightly",
    settings.get_profile("muster"),
    max_examples=2_000,
    deadline=None,
    suppress_health_check=_CHECKS,
)
