"""The locks of the images are parts of the workspace's lock."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted(
    [
        *ROOT.glob("services/*/requirements.lock"),
        *ROOT.glob("deploy/images/*.lock"),
        ROOT / "examples/digits/requirements.lock",
    ]
)
ENTRY = re.compile(
    r"^(?P<pin>[^\s#].*?==\S+(?: ; [^\\]+)?)(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)",
    re.MULTILINE,
)


def entries(lock: Path) -> dict[str, frozenset[str]]:
    """Return the hashes of each pinned requirement with its marker."""
    return {
        found["pin"].strip(): frozenset(re.findall("[0-9a-f]{64}", found["hashes"]))
        for found in ENTRY.finditer(lock.read_text())
    }


def test_every_service_has_a_lock() -> None:
    services = {path.parent for path in ROOT.glob("services/*/pyproject.toml")}
    assert len(services) == 6
    assert {path.parent for path in LOCKS} >= services


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_lock_agrees_with_that_of_the_workspace(lock: Path) -> None:
    """After a change of the dependencies run ``make lock``."""
    own, whole = entries(lock), entries(ROOT / "requirements.lock")
    pinned = {pin.partition(" ;")[0] for pin in whole}

    assert len(own) >= 5
    # A package that the workspace needs on every system may be needed on some by a service, and so have a marker.
    assert {pin.partition(" ;")[0] for pin in own} <= pinned
    hashes = {pin.partition(" ;")[0]: found for pin, found in whole.items()}
    assert all(hashes[pin.partition(" ;")[0]] == found for pin, found in own.items())
    assert len(own) == lock.read_text().count("==")


@pytest.mark.parametrize(
    "lock", [*LOCKS, ROOT / "requirements.lock"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_lock_names_no_index(lock: Path) -> None:
    assert "://" not in lock.read_text()
    assert "--index" not in lock.read_text()
