"""What the tests of `muster up` share."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Tests are imported by path, so the helpers beside them are not found otherwise.
sys.path.insert(0, str(Path(__file__).parent))

from local_standins import Ears, behaving

from muster_local.processes import Program


@pytest.fixture
def ears() -> Ears:
    return Ears()


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Makes a program that behaves as told."""

    def make(name: str, *behaviour: str, grace_s: float = 20.0) -> Program:
        return Program(
            name=name,
            argv=behaving(*behaviour),
            env=dict(os.environ),
            cwd=str(tmp_path),
            grace_s=grace_s,
            fatal_exit=2,
        )

    return make


@pytest.fixture
def standins() -> Callable[[str], tuple[str, ...]]:
    """A command for every service's module: a stand-in that serves until SIGTERM."""
    return lambda _module: behaving("serve")
