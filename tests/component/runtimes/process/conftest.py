"""Runtimes on a root of the test's own, and the proof that nothing of them is left behind."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from process_room import Room


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    """A root with runtimes on it; every replica is gone afterwards."""
    room = Room(tmp_path)
    try:
        yield room
    finally:
        await room.clear()
    assert room.processes() == []
