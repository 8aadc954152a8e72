"""What can be set of a spec-validator."""

from __future__ import annotations

from typing import Annotated

import msgspec

from muster_runtime.settings import ServiceSettings


class SpecValidatorSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of spec-validator."""

    concurrency: Annotated[
        int, msgspec.Meta(description="submissions validated side by side", ge=1, le=1024)
    ] = 128
