"""A harness per test, and the check that no process is left behind."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from runtime_harness import RuntimeHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[RuntimeHarness]:
    """Yield a harness; all its processes are gone afterwards."""
    harness = RuntimeHarness(tmp_path)
    try:
        yield harness
    finally:
        await harness.clear()
    assert harness.processes() == []
