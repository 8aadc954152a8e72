"""Fixtures with a Docker engine, which a ``conftest.py`` imports by name.

Without an engine the tests are skipped, or fail with ``MUSTER_TEST_CONTAINERS=required``, which CI sets.
"""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from muster_testing.containers.deployment import Deployment
from muster_testing.containers.engine import Engine, LocalEngine, given_engine, obstacle
from muster_testing.containers.images import BuiltImages, build_muster, provide_published
from muster_testing.containers.tools import COMMAND, missing

REQUIRED = "MUSTER_TEST_CONTAINERS"


def skip_or_fail(reason: str) -> None:
    """Skip the test for a reason, or fail it if tests of containers are required; no reason changes nothing."""
    if reason and os.environ.get(REQUIRED) == "required":
        pytest.fail(reason)
    elif reason:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> Generator[Engine]:
    """A Docker engine: the given one, or one of this machine."""
    skip_or_fail(obstacle())
    given = given_engine()
    if given is not None:
        yield given
        return
    # Not below pytest's folder: the path of a socket must be short.
    with LocalEngine(Path(tempfile.mkdtemp(prefix="muster-docker-"))) as started:
        yield started


@pytest.fixture(scope="session")
def images(engine: Engine) -> Engine:
    """The engine with the images of Muster."""
    build_muster(engine)
    return engine


@pytest.fixture(scope="session")
def all_images(images: Engine) -> BuiltImages:
    """The engine with all images that ``compose.yaml`` names, but Prometheus where it is not installed."""
    unbuilt = [name for _, name in missing()]
    skip_or_fail(f"run {COMMAND}: {', '.join(unbuilt)} not installed" if unbuilt else "")
    return BuiltImages(engine=images, has_prometheus=provide_published(images))


@pytest.fixture(scope="session")
def deployment(all_images: BuiltImages) -> Generator[Deployment]:
    """The running deployment of ``compose.yaml``, which the tests of a session share."""
    without = () if all_images.has_prometheus else ("prometheus",)
    running = Deployment(all_images.engine, without=without)
    try:
        running.up()
        yield running
    finally:
        running.down()
