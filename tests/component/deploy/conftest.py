import pytest

from muster_testing.cluster.fixtures import need_tools
from muster_testing.cluster.kustomize import KUBERNETES, OPTIONAL, Manifests, overlay_of, render

OVERLAYS = sorted(each.parent.name for each in KUBERNETES.glob("overlays/*/kustomization.yaml"))
_rendered: dict[str, Manifests] = {}


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> Manifests:
    """The manifests of each overlay."""
    return rendered(str(request.param))


@pytest.fixture
def production() -> Manifests:
    """The manifests of the overlay for production."""
    return rendered("production")


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Manifests:
    """The manifests of an overlay that adds the optional components to those of production."""
    need_tools("kubectl")
    return render(
        overlay_of(
            tmp_path_factory.mktemp("everything"), "overlays/production-gpu-sharing", components=OPTIONAL
        )
    )


def rendered(name: str) -> Manifests:
    """Render an overlay, once."""
    need_tools("kubectl")
    if name not in _rendered:
        _rendered[name] = render(KUBERNETES / "overlays" / name)
    return _rendered[name]
