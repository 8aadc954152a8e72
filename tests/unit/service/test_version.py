"""The version that every instance states."""

from __future__ import annotations

import tomllib
from pathlib import Path

from muster_service.version import VERSION

ROOT = Path(__file__).resolve().parents[3]


def test_every_package_has_the_version_that_instances_state() -> None:
    documents = [
        ROOT / "pyproject.toml",
        *ROOT.glob("libs/*/pyproject.toml"),
        *ROOT.glob("services/*/pyproject.toml"),
    ]
    versions = {tomllib.loads(path.read_text())["project"]["version"] for path in documents}
    assert versions == {VERSION}
