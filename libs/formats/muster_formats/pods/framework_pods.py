"""Which container of a replica's template decides how it ends, and on which port it waits for the others, by framework.

Source: the training operators' documented container and port names. Every format with templates agrees on them, so that a job means
the same whichever way it was written.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster_core.frameworks import FRAMEWORK_PORTS
from muster_core.models import Framework, Port
from muster_formats.pods.keys import TemplateKeys
from muster_formats.pods.kubeshare import SWITCH
from muster_formats.pods.template import Main

CONTAINERS: Mapping[Framework, str] = {
    Framework.TENSORFLOW: "tensorflow",
    Framework.PYTORCH: "pytorch",
    Framework.XGBOOST: "xgboost",
    Framework.PADDLE: "paddle",
    Framework.JAX: "jax",
    Framework.MXNET: "mxnet",
}
"""What the container is called that decides; in a framework that is not here it is the first."""


def main_of(
    framework: Framework,
    annotations: Mapping[str, str],
    *,
    container: str = "",
    required: bool = False,
    table: type[TemplateKeys] = TemplateKeys,
) -> Main:
    """Which container decides in a job of ``framework`` that is annotated so; ``container`` is its name where the job says one itself.

    ``required``: whether a template without it is refused. ``table`` is what a template may hold.
    """
    port = FRAMEWORK_PORTS.get(framework)
    return Main(
        container=container or CONTAINERS.get(framework, ""),
        required=required and bool(container or framework in CONTAINERS),
        port=Port(name=port.name, number=port.number) if port else None,
        kubeshare=annotations.get(SWITCH) == "true",
        table=table,
    )
