"""The settings of the sink; `MUSTER_SINK_...` in the environment."""

from pathlib import Path
from typing import Annotated

import msgspec

from muster_service.settings import Address, ServiceSettings


class SinkSettings(ServiceSettings, frozen=True, kw_only=True):
    """Where spans come in (`grpc_address`), where they are asked for, and how many are kept."""

    folder: Annotated[Path, msgspec.Meta(description="folder of the database, made if it is not there")]
    http_address: Annotated[Address, msgspec.Meta(description="where traces are asked for")] = Address(
        "127.0.0.1:0"
    )
    max_mib: Annotated[
        int,
        msgspec.Meta(description="mebibytes of spans to keep; the oldest traces are dropped above it", ge=1),
    ] = 256
