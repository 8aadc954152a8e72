"""Fixtures for tests of `muster up`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# Tests are imported by path; this makes the helpers beside them importable.
sys.path.insert(0, str(Path(__file__).parent))

from local_fakes import LogRecorder, fake_service

from muster_local.processes import Program


@pytest.fixture
def log() -> LogRecorder:
    return LogRecorder()


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., Program]:
    """Makes a program with the behaviour of a fake service."""

    def make(name: str, *behaviour: str, grace_s: float = 20.0) -> Program:
        return Program(
            name=name,
            argv=fake_service(*behaviour),
            env=dict(os.environ),
            cwd=str(tmp_path),
            grace_s=grace_s,
            fatal_exit=2,
        )

    return make


@pytest.fixture
def fake_command() -> Callable[[str], tuple[str, ...]]:
    """A command for every service's module: a fake service that runs until SIGTERM."""
    return lambda _module: fake_service("serve")
