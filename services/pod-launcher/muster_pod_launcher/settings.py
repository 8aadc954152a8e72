"""What can be set of a pod-launcher."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import msgspec

from muster_runtime.settings import ServiceSettings


class PodLauncherSettings(ServiceSettings, frozen=True, kw_only=True):
    """Settings of pod-launcher."""

    pool: Annotated[str, msgspec.Meta(description="the pool whose hands this is")] = "local"
    runtime: Annotated[Literal["process"], msgspec.Meta(description="what runs replicas")] = "process"
    process_root: Annotated[
        Path,
        msgspec.Meta(
            description="process runtime: the folder under which everything of the replicas is kept"
        ),
    ] = Path(".muster/replicas")
    nodes: Annotated[
        str,
        msgspec.Meta(
            description="process runtime: virtual nodes, e.g. 'n1:cpu=4,gpu=2;n2:cpu=4'; empty: this machine as one"
        ),
    ] = ""
    workdir: Annotated[
        Path, msgspec.Meta(description="process runtime: where relative working folders start")
    ] = Path()
