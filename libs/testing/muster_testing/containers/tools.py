"""Programs of the container tests, built from ``tests/containers/tools``: ``docker-compose`` and ``jaeger``."""

from pathlib import Path

from muster_testing.go_programs import TESTS, GoModule, required_version

COMMAND = "make container-tools"

_FOLDER = TESTS / "containers" / "tools"
_COMPOSE_MODULE = "github.com/docker/compose/v2"
_JAEGER_MODULE = "github.com/jaegertracing/jaeger"

COMPOSE = GoModule(
    name="compose",
    folder=_FOLDER / "compose",
    packages={"docker-compose": f"{_COMPOSE_MODULE}/cmd"},
    command=COMMAND,
    variables={f"{_COMPOSE_MODULE}/internal.Version": required_version(_FOLDER / "compose", _COMPOSE_MODULE)},
    is_exact=True,
)
JAEGER = GoModule(
    name="jaeger",
    folder=_FOLDER / "jaeger",
    packages={"jaeger": f"{_JAEGER_MODULE}/cmd/jaeger"},
    command=COMMAND,
    is_exact=True,
)
MODULES = (COMPOSE, JAEGER)


def missing() -> list[tuple[GoModule, str]]:
    """Return the programs that are not built."""
    return [(module, name) for module in MODULES for name in module.packages if module.find(name) is None]


def compose_program() -> Path:
    """Return ``docker-compose``; raises ``MissingTool``."""
    return COMPOSE.require("docker-compose")
